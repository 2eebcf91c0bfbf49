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
	case c.Verb == Replace && c.Chain != nil && isAllow(c.Chain.Name) && hasRules(c.Chain.Rules, c.OldRules, c.Family):
		return prepare
	case c.Chain != nil && c.Chain.Hook != nft.NoHook:
		return turn
	case c.Verb == Add && (isEarly || isSet || c.Chain != nil) || c.fills:
		return prepare
	}
	return turn
}

// isAllow reports whether a chain looks into lists of allowed clients. A list must be there
// when a frontend begins to have one: a packet that is under way would find the frontend,
// and not its client.
func isAllow(chain string) bool {
	return slices.ContainsFunc(nft.Shapes[:], func(s nft.Shape) bool { return chain == s.Chain(nft.AllowChain) })
}

// hasRules reports whether all of some rules are among others.
func hasRules(rules, all []nft.Rule, f model.Family) bool {
	return !slices.ContainsFunc(all, func(r nft.Rule) bool {
		return !slices.ContainsFunc(rules, func(o nft.Rule) bool { return o.Text(f) == r.Text(f) })
	})
}

// exchangesRules reports whether a chain gets rules and loses others: of the frontends that come and
// leave, some may need the ones, and some the others. A chain that loses a list of allowed clients
// does so with the clients.
func (c *Change) exchangesRules() bool {
	return c.Verb == Replace && c.Chain != nil && !hasRules(c.Chain.Rules, c.OldRules, c.Family) &&
		(isAllow(c.Chain.Name) || !hasRules(c.OldRules, c.Chain.Rules, c.Family))
}
