package explain

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// branch is a packet after a rule, with the verdict.
type branch struct {
	state
	step  Step
	next  nft.Verdict
	doubt string // why a match is uncertain; it matters if the rest of the rule matches
	slot  uint32
}

// traceRule evaluates one rule. If the rule chooses a slot there is a branch for each
// endpoint, and one for slots without an endpoint, if any.
func (tr *tracer) traceRule(p *state, c *nft.Chain, r nft.Rule) []branch {
	step := Step{Chain: c.Name, Rule: r.Text(tr.table.Family), Matched: true}
	choice, ok := findChoice(r)
	if !ok {
		r = nft.Rule{nft.Foreign{Description: step.Rule}}
	}
	if choice == nil || !ok {
		b := tr.evaluateRule(p, step, r, 0)
		b.Path = append(b.Path, b.step)
		if b.Relay != 0 && p.Relay == 0 {
			return tr.relayBranches(&b)
		}
		return []branch{b}
	}
	possible := slotsFor(choice, p)
	branches := tr.traceSlots(p, step, r, possible)
	for i := range branches {
		b := &branches[i]
		b.Path = append(slices.Clip(b.Path), b.step)
		if len(branches) == 1 && !b.step.Matched { // does not depend on the slot
			b.Slots = nil
			continue
		}
		b.Of = len(possible)
		if choice.First != 0 && choice.Count > 1 { // of a lane: the number in a rule without a slot has no scheduler
			b.Scheduler = choice.Scheduler.String()
			if choice.Scheduler.IsMaglev() {
				b.TableSize = choice.Count
			}
		}
		b.Share *= float64(len(b.Slots)) / float64(b.Of)
	}
	return branches
}

func (tr *tracer) relayBranches(b *branch) []branch {
	slots := tr.table.Slots(tr.table.Serving(b.dialled))
	if len(slots) == 0 { // of a table that lacks something
		return []branch{*b}
	}
	out := make([]branch, len(slots))
	for i, e := range slots {
		out[i] = *b
		o := &out[i].Outcome
		o.Endpoint, o.Slots, o.Of, o.Share, o.lane = e.Value.Endpoint, []uint32{e.Key.Slot}, len(slots), b.Share/float64(len(slots)), nft.RelayChain
	}
	return out
}

func (tr *tracer) traceSlots(p *state, step Step, r nft.Rule, slots []uint32) []branch {
	type alike struct {
		endpoint model.Frontend
		class    nft.Class
		next     nft.Verdict
		verdict  Disposition
		matched  bool
	}
	index := make(map[alike]int)
	var branches []branch
	for _, slot := range slots {
		b := tr.evaluateRule(p, step, r, slot)
		key := alike{b.Frontend(), b.class, b.next, b.Verdict, b.step.Matched}
		i, ok := index[key]
		if !ok {
			i = len(branches)
			index[key] = i
			b.Slots = nil
			branches = append(branches, b)
		}
		branches[i].Slots = append(branches[i].Slots, slot)
	}
	return branches
}

// maxSlots is far more than our rules have.
const maxSlots = 1 << 20

// findChoice returns the operand of a rule that picks a slot, or a number on which the
// match depends; nil if there is none. A rule with two of them, or with an
// impossible range, is foreign: then ok is false.
func findChoice(r nft.Rule) (choice *nft.Slots, ok bool) {
	ok = true
	for _, st := range r {
		var s nft.Slots
		chooses := false
		switch st := st.(type) {
		case nft.OneIn:
			s, chooses = st.Number(), !st.InTurn // the turn matters only for the source
		case nft.Choose:
			s, chooses = st.Slots, true
		case nft.DNAT:
			s, chooses = st.Slots()
		}
		if chooses {
			ok = choice == nil && s.Count > 0 && s.Count <= maxSlots
			choice = &s
		}
	}
	return choice, ok
}

func slotsFor(s *nft.Slots, p *state) []uint32 {
	if key, seed := s.Hash(); len(key) == 1 && p.Source.IsValid() { // the client's port is not known
		hash := jenkinsHash(p.Source.AsSlice(), seed)
		return []uint32{s.First + uint32(uint64(hash)*uint64(s.Count)>>32)} // reciprocal_scale() of linux/kernel.h
	}
	out := make([]uint32, s.Count)
	for i := range out {
		out[i] = s.First + uint32(i)
	}
	return out
}

// evaluateRule evaluates the statements of a rule until one does not match or stops
// the packet.
func (tr *tracer) evaluateRule(p *state, step Step, r nft.Rule, slot uint32) branch {
	b := branch{state: *p, step: step, slot: slot}
	for _, st := range r {
		if b.step.Matched = tr.evaluateStatement(&b, st); !b.step.Matched || b.stopped {
			break
		}
	}
	return b
}

// isCertain reports whether the match is certain. Otherwise it stops the packet: the
// outcome is unknown.
func (b *branch) isCertain() bool {
	if b.doubt != "" {
		b.stop(Unknown, b.doubt)
	}
	return b.doubt == ""
}

// matchUnless records a mismatch, and reports whether the statement matches.
func (b *branch) matchUnless(mismatch bool, why string) bool {
	if mismatch {
		b.note("%s", why)
	}
	return !mismatch
}

func (b *branch) matchProtocol(isOther bool) bool {
	b.step.otherProtocol = isOther
	return b.matchUnless(isOther, "the protocol is "+b.protocolText())
}

func (b *branch) note(format string, args ...any) {
	b.step.Details = append(b.step.Details, fmt.Sprintf(format, args...))
}

func (b *branch) noteFound(set, what string) {
	b.step.sets = append(b.step.sets, set)
	b.note("@%s: %s", set, what)
}
