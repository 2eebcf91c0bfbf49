package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Phases splits a plan into transactions that follow each other. What packets
// meet changes in one of them. New lanes and slots, to which nothing leads yet,
// come before it, and those to which nothing leads any more go after it.
//
// The kernel takes all rules that a packet meets in one chain from one
// generation, but looks elements up as of now: in the middle of a commit a
// packet may find the new verdict of its frontend, go on in the new lane, which
// has no rules in its generation, and leave untranslated, with an entry that
// keeps its connection so (seen on 6.18: a few in 400 commits at 25,000 new
// flows a second).
func (p *Plan) Phases() []*Plan {
	// Where a table comes or goes, or a map is declared anew, there is nothing
	// that could be prepared, but for what makes the change pass unnoticed.
	atOnce := make(map[model.Family]bool)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Kind() == "table" || c.redeclares() {
			atOnce[c.Family] = true
		}
	}
	phase := func(c *Change) int {
		switch {
		case c.Passing && len(c.OldRules) > 0 && c.Verb == Replace:
			return prepare
		case c.Passing && c.Verb == Delete:
			return tidy
		case atOnce[c.Family]:
			return turn
		}
		return p.phaseOf(c)
	}
	var sizes [3]int
	for i := range p.Changes {
		sizes[phase(&p.Changes[i])]++
	}
	var out []*Plan
	for n, size := range sizes {
		switch size {
		case 0:
			continue
		case len(p.Changes):
			return []*Plan{p}
		}
		part := &Plan{Changes: make([]Change, 0, size), services: p.services}
		for i := range p.Changes {
			if c := &p.Changes[i]; phase(c) == n {
				part.Changes = append(part.Changes, *c)
			}
		}
		out = append(out, part)
	}
	return out
}

const (
	prepare = iota
	turn
	tidy
)

func (p *Plan) phaseOf(c *Change) int {
	// An endpoint must be known as one of its frontend before a client can get
	// it, and until none can: see render's affinityChains.
	isSlot := c.Kind() == "element" && (c.Set.Name == nft.EndpointsMap || c.Set.Name == nft.AffinityEndpointsSet)
	isSet := c.Kind() == "set" || c.Kind() == "map"
	switch {
	case c.Verb == Delete && (isSlot || isSet || c.Chain != nil):
		return tidy
	case c.Chain != nil && c.Chain.Hook != nft.NoHook:
		return turn
	case c.Verb == Add && (isSlot || isSet || c.Chain != nil) || p.fills(c):
		return prepare
	}
	return turn
}

// fills tells whether the change gives a chain that is new its first rules.
func (p *Plan) fills(c *Change) bool {
	return c.fillsNewChain() && slices.ContainsFunc(p.Changes, func(o Change) bool {
		return o.Verb == Add && o.Kind() == "chain" && o.Family == c.Family && o.Chain.Name == c.Chain.Name
	})
}
