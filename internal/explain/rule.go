package explain

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// branch is a packet after a rule, and where it goes from there.
type branch struct {
	state
	step Step
	next nft.Verdict
	// doubt is why a match is not certain. It matters only if everything
	// else in the rule matches.
	doubt string
	slot  uint32
}

// rule evaluates one rule. There are several branches if the rule chooses a slot:
// one for each endpoint, and perhaps one for slots without.
func (tr *tracer) rule(p *state, c *nft.Chain, r nft.Rule) []branch {
	step := Step{Chain: c.Name, Rule: r.Text(tr.table.Family), Matched: true}
	choice, ok := chooses(r)
	if !ok {
		r = nft.Rule{nft.Foreign{Description: step.Rule}}
	}
	if choice == nil || !ok {
		b := tr.evaluate(p, step, r, 0)
		b.Path = append(b.Path, b.step)
		return []branch{b}
	}
	possible := slotsFor(choice, p)
	branches := tr.choose(p, step, r, possible)
	for i := range branches {
		b := &branches[i]
		b.Path = append(slices.Clip(b.Path), b.step)
		if len(branches) == 1 && !b.step.Matched { // does not depend on the slot
			b.Slots = nil
			continue
		}
		b.Of = len(possible)
		b.Share *= float64(len(b.Slots)) / float64(b.Of)
	}
	return branches
}

// choose evaluates a rule for each slot and joins what comes out alike.
func (tr *tracer) choose(p *state, step Step, r nft.Rule, slots []uint32) []branch {
	type alike struct {
		endpoint model.Frontend
		next     nft.Verdict
		verdict  Disposition
		matched  bool
	}
	index := make(map[alike]int)
	var branches []branch
	for _, slot := range slots {
		b := tr.evaluate(p, step, r, slot)
		key := alike{b.Frontend(), b.next, b.Verdict, b.step.Matched}
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

// maxSlots is far more than any of our rules has.
const maxSlots = 1 << 20

// chooses returns the operand of a rule that picks a slot, or a number that
// decides whether it matches, if there is one. A rule with two of them, or with an
// impossible range, is not ours.
func chooses(r nft.Rule) (choice *nft.Slots, ok bool) {
	ok = true
	for _, st := range r {
		if s, isChance := st.(nft.OneIn); isChance {
			n := s.Number()
			ok = choice == nil && n.Count > 0 && n.Count <= maxSlots
			choice = &n
		}
		_, key := nft.SetOf(st)
		for _, o := range key {
			if s, isChoice := o.(nft.Slots); isChoice {
				ok = choice == nil && s.Count > 0 && s.Count <= maxSlots
				choice = &s
			}
		}
	}
	return choice, ok
}

// slotsFor returns the slots that may be picked for a packet.
func slotsFor(s *nft.Slots, p *state) []uint32 {
	if s.Scheduler == model.SourceHash && p.Source.IsValid() {
		return []uint32{s.First + scale(jhash(p.Source.AsSlice(), nft.HashSeed), s.Count)}
	}
	out := make([]uint32, s.Count)
	for i := range out {
		out[i] = s.First + uint32(i)
	}
	return out
}

// evaluate goes through the statements of a rule until one does not match or
// ends it.
func (tr *tracer) evaluate(p *state, step Step, r nft.Rule, slot uint32) branch {
	b := branch{state: *p, step: step, slot: slot}
	for _, st := range r {
		if b.step.Matched = tr.statement(&b, st); !b.step.Matched || b.stopped {
			break
		}
	}
	return b
}

// certain stops a packet that would be acted on if what is in doubt were so.
func (b *branch) certain() bool {
	if b.doubt != "" {
		b.stop(Unknown, b.doubt)
	}
	return b.doubt == ""
}

// unless reports whether a statement matches, and notes why not.
func (b *branch) unless(mismatch bool, why string) bool {
	if mismatch {
		b.step.Details = append(b.step.Details, why)
	}
	return !mismatch
}
