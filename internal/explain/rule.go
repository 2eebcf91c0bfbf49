package explain

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// turn is a packet after a rule, and where it goes from there.
type turn struct {
	traveller
	step Step
	next nft.Verdict
	// doubt tells why a match is not certain. It matters only if everything
	// else in the rule matches.
	doubt string
	slot  uint32
}

// rule evaluates one rule. There are several turns if the rule chooses a slot:
// one for each endpoint, and perhaps one for slots without.
func (w *walk) rule(p *traveller, c *nft.Chain, r nft.Rule) []turn {
	step := Step{Chain: c.Name, Rule: r.Text(w.table.Family), Matched: true}
	choice, ok := chooses(r)
	if !ok {
		r = nft.Rule{nft.Foreign{Description: step.Rule}}
	}
	if choice == nil || !ok {
		t := w.evaluate(p, step, r, 0)
		t.Path = append(t.Path, t.step)
		return []turn{t}
	}
	possible := slotsFor(choice, p)
	turns := w.choose(p, step, r, possible)
	for i := range turns {
		t := &turns[i]
		t.Path = append(slices.Clip(t.Path), t.step)
		if len(turns) == 1 && !t.step.Matched { // does not depend on the slot
			t.Slots = nil
			continue
		}
		t.Of = len(possible)
		t.Share *= float64(len(t.Slots)) / float64(t.Of)
	}
	return turns
}

// choose evaluates a rule for each slot and joins what comes out alike.
func (w *walk) choose(p *traveller, step Step, r nft.Rule, slots []uint32) []turn {
	type turnKey struct {
		endpoint model.Frontend
		next     nft.Verdict
		verdict  Verdict
		matched  bool
	}
	index := make(map[turnKey]int)
	var turns []turn
	for _, slot := range slots {
		t := w.evaluate(p, step, r, slot)
		key := turnKey{t.Frontend(), t.next, t.Verdict, t.step.Matched}
		i, ok := index[key]
		if !ok {
			i = len(turns)
			index[key] = i
			t.Slots = nil
			turns = append(turns, t)
		}
		turns[i].Slots = append(turns[i].Slots, slot)
	}
	return turns
}

// maxSlots is far more than any of our rules has.
const maxSlots = 1 << 20

// chooses returns the operand of a rule that picks a slot, or a number that
// decides whether it matches, if there is one. A rule with two of them, or with a range that makes no sense, is not ours.
func chooses(r nft.Rule) (choice *nft.Slots, ok bool) {
	ok = true
	for _, st := range r {
		if s, isChance := st.(nft.OneIn); isChance {
			n := s.Number()
			ok = choice == nil && n.Count > 0 && n.Count <= maxSlots
			choice = &n
		}
		var key nft.Concat
		if r, ok := st.(nft.Reference); ok {
			key, _ = r.Refers()
		}
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
func slotsFor(s *nft.Slots, p *traveller) []uint32 {
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
func (w *walk) evaluate(p *traveller, step Step, r nft.Rule, slot uint32) turn {
	t := turn{traveller: *p, step: step, slot: slot}
	for _, st := range r {
		if t.step.Matched = w.statement(&t, st); !t.step.Matched || t.stopped {
			break
		}
	}
	return t
}

// certain stops a packet that would be acted on if what is in doubt were so.
func (t *turn) certain() bool {
	if t.doubt != "" {
		t.stop(Unknown, t.doubt)
	}
	return t.doubt == ""
}

// unless returns whether a statement matches, and notes why not.
func (t *turn) unless(mismatch bool, why string) bool {
	if mismatch {
		t.step.Details = append(t.step.Details, why)
	}
	return !mismatch
}
