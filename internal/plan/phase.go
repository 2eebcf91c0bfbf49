package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Phases splits a plan into successive transactions. One of them changes what
// packets see. New lanes and slots, to which nothing leads yet, are added before it,
// and unused ones deleted after it.
//
// The kernel evaluates a chain in the generation in which the packet entered it, but
// looks elements up in the current one. During a commit a packet may find the new
// verdict of its frontend and continue in the new lane, which has no rules in the
// packet's generation. It leaves untranslated, and its conntrack entry keeps the
// connection that way (seen on 6.18: a few in 400 commits at 25,000 new flows
// a second).
//
// Where ranges of ports change, frontends that end leave in another transaction: see
// moves.
func (p *Plan) Phases() []*Plan {
	if len(p.Changes) == 1 {
		return []*Plan{p}
	}
	// Where a table is added, deleted or replaced, or a map redeclared, only the
	// bridge has several phases.
	inOne, limited := make(map[model.Family]bool), make(map[limitedFrontend]bool)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind() == "table" || c.redeclaresMap() {
			inOne[c.Family] = true
		}
		if c.Kind() == "element" && nft.IDOf(c.Set.Name).Name == nft.AllowFrontendsSet {
			limited[limitedFrontend{c.Family, idOf(c)}] = true
		}
	}
	moves := p.rangeMoves()
	p = p.keepLists(moves, inOne)
	of := func(c *Change) phase {
		switch {
		case c.passing != 0:
			return c.passing
		case inOne[c.Family]:
			return turn
		}
		n := phaseOf(c)
		if c.Kind() == "element" && nft.RowOf(c.Set.Name).Decides == nft.AllowFrontendsSet && !limited[limitedFrontend{c.Family, idOf(c)}] {
			n = turn // other clients of a list that is there before and afterwards
		}
		if n != turn || moves[c.Family] == nil {
			return n
		}
		return moves[c.Family].phaseOf(c)
	}
	phases := make([]phase, len(p.Changes))
	var sizes [tidy + 1]int
	for i := range p.Changes {
		phases[i] = of(&p.Changes[i])
		sizes[phases[i]]++
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
			if phases[i] == phase(n) {
				part.Changes = append(part.Changes, p.Changes[i])
			}
		}
		out = append(out, part)
	}
	return out
}

// limitedFrontend is a frontend that begins or ceases to have a list of allowed clients.
type limitedFrontend struct {
	family model.Family
	id     model.FrontendID
}

// phase is the place of a change among the transactions of a plan.
type phase uint8

const (
	prepare phase = iota + 1
	turn
	swap // of ranges of ports
	leave
	tidy
)

func phaseOf(c *Change) phase {
	isEarly := c.Kind() == "element" && nft.RowOf(c.Set.Name).Early
	isSet := c.Kind() == "set" || c.Kind() == "map"
	switch {
	case c.Verb == Delete && (isEarly || isSet || c.Chain != nil):
		return tidy
	case c.Verb == Replace && c.Chain != nil && isAllow(c.Chain.Name):
		return phaseOfAllow(c)
	case c.Chain != nil && c.Chain.Hook != nft.NoHook:
		return turn
	case c.Verb == Add && (isEarly || isSet || c.Chain != nil) || c.fills:
		return prepare
	}
	return turn
}

func isList(chain string) bool {
	return isAllow(chain) || slices.ContainsFunc(nft.Shapes[:], func(s nft.Shape) bool { return chain == s.Chain(nft.DenyChain) })
}

// isAllow reports whether a chain looks into lists of allowed clients. A list must be there
// when a frontend begins to have one: a packet that is under way would find the frontend,
// and not its client.
func isAllow(chain string) bool {
	return slices.ContainsFunc(nft.Shapes[:], func(s nft.Shape) bool { return chain == s.Chain(nft.AllowChain) })
}

// phaseOfAllow returns the phase in which a chain of allowed clients gets other rules: early
// if it gets more, late if it gets fewer.
func phaseOfAllow(c *Change) phase {
	switch {
	case c.fills || hasRules(c.Chain.Rules, c.OldRules, c.Family):
		return prepare
	case hasRules(c.OldRules, c.Chain.Rules, c.Family):
		return tidy
	}
	return turn
}

// hasRules reports whether all of some rules are among others.
func hasRules(rules, all []nft.Rule, f model.Family) bool {
	return !slices.ContainsFunc(all, func(r nft.Rule) bool {
		return !slices.ContainsFunc(rules, func(o nft.Rule) bool { return o.Text(f) == r.Text(f) })
	})
}

// keepLists lets chains that look into lists of clients look into the lists from before, too, where
// ranges of ports leave after the transaction in which other lists come.
func (p *Plan) keepLists(moves map[model.Family]*moves, inOne map[model.Family]bool) *Plan {
	out := *p
	for i := 0; i < len(out.Changes); i++ {
		c := out.Changes[i]
		if moves[c.Family] == nil || inOne[c.Family] || !c.exchangesLists() {
			continue
		}
		both := *c.Chain
		both.Rules = slices.DeleteFunc(slices.Clone(c.OldRules), func(r nft.Rule) bool {
			_, looksUp := r[0].(nft.InSet)
			return !looksUp || hasRules(c.Chain.Rules, []nft.Rule{r}, c.Family)
		})
		both.Rules = append(both.Rules, c.Chain.Rules...)
		c.Chain, c.passing = &both, turn
		out.Changes = slices.Insert(slices.Clone(out.Changes), i, c)
		i++
	}
	return &out
}

// exchangesLists reports whether a chain looks into other lists of clients than before.
func (c *Change) exchangesLists() bool {
	return c.Verb == Replace && c.Chain != nil && !c.fills && c.passing == 0 && isList(c.Chain.Name) &&
		!hasRules(c.OldRules, c.Chain.Rules, c.Family) && !hasRules(c.Chain.Rules, c.OldRules, c.Family) &&
		!slices.ContainsFunc(slices.Concat(c.OldRules...), isForeign)
}
