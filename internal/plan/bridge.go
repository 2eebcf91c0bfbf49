package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// bridge surrounds the changes that take a map or a whole table away and bring
// another one of its name, for the packets that are under way meanwhile. Such a
// packet may meet the rules of before but no element of the map any more, or be
// in a new base chain before it has rules, and then in the old one when that has
// none any more: a new chain comes before an old one of the same hook and
// priority. It then leaves untranslated, or is refused.
//
// So there are, until the next transaction, base chains behind the others, with
// the rules that are wanted; and so that the packet comes there, the table
// refuses nothing for want of a frontend from the transaction before on. (Seen
// on 6.18, in 3,000 changes of a table one after the other: 8 of 144,000 new
// flows were lost without this.)
//
// The changes are those of the table that is there by then.
func (p *Plan) bridge(cur, want *nft.Table, change func(cur *nft.Table)) {
	there := *cur
	there.Chains = slices.Clone(cur.Chains)
	for i, c := range cur.Chains {
		if lenient := WithoutRefusals(cur, c); len(lenient.Rules) < len(c.Rules) {
			there.Chains[i] = lenient
			p.Changes = append(p.Changes,
				Change{Verb: Replace, Family: want.Family, Chain: lenient, OldRules: c.Rules, Passing: prepare})
		}
	}
	first := len(p.Changes)
	change(&there)
	for i := range p.Changes[first:] {
		c := &p.Changes[first+i]
		if c.Chain == nil || c.Verb == Add || c.Fills {
			continue
		}
		if before := cur.Chain(c.Chain.Name); there.Chain(before.Name) != before {
			c.since(before.Rules)
		}
	}
	for _, c := range lateChains(want) {
		p.Changes = append(p.Changes,
			Change{Verb: Add, Family: want.Family, Chain: c, Passing: turn},
			Change{Verb: Replace, Family: want.Family, Chain: c, Passing: turn},
			Change{Verb: Delete, Family: want.Family, Chain: c, OldRules: c.Rules, Passing: tidy})
	}
}

// since gives the change of a chain the rules that people know, those from before
// a bridge. It passes if it brings them back.
func (c *Change) since(before []nft.Rule) {
	c.OldRules = before
	if c.Verb == Replace && EqualRules(before, c.Chain.Rules, c.Family) {
		c.Passing = turn
	}
}

// resume corrects what a plan says, from a change on, about a chain that a bridge
// changed before: it may have been broken off.
func (p *Plan) resume(before *Change, from int) {
	for i := range p.Changes[from:] {
		if c := &p.Changes[from+i]; c.Chain != nil && c.Passing == 0 && c.Family == before.Family && c.Chain.Name == before.Chain.Name {
			c.since(before.OldRules)
		}
	}
}

// lateChains returns the base chains of a table again, right behind themselves.
func lateChains(t *nft.Table) []*nft.Chain {
	var out []*nft.Chain
	for _, c := range t.Chains {
		if c.Hook == nft.NoHook {
			continue
		}
		late := *c
		late.Name += "-late"
		late.Priority++
		out = append(out, &late)
	}
	return out
}

// isLate tells whether a chain was left by a bridge to the table that is wanted.
func isLate(c *nft.Chain, want *nft.Table) bool {
	return slices.ContainsFunc(lateChains(want), func(o *nft.Chain) bool { return o.Same(c) })
}

// WithoutRefusals returns a chain of a table without what it does about our
// addresses where no frontend is. A chain of which something is not understood
// stays as it is.
func WithoutRefusals(t *nft.Table, c *nft.Chain) *nft.Chain {
	if slices.ContainsFunc(slices.Concat(c.Rules...), func(s nft.Statement) bool { return !isOurs(t, s) }) {
		return c
	}
	out := *c
	out.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r nft.Rule) bool { return refusesAddress(t, r) })
	return &out
}

// refusesAddress recognises a rule such as "ip daddr @cluster-ips goto refuse".
func refusesAddress(t *nft.Table, r nft.Rule) bool {
	if len(r) != 2 {
		return false
	}
	in, ok := r[0].(nft.InSet)
	if !ok || in.Not || len(in.Key) != 1 || in.Key[0] != nft.DestinationAddress {
		return false
	}
	v, _ := r[1].(nft.Verdict)
	return v.Action == nft.Drop || v.Action == nft.Goto && refuses(t.Chain(v.Chain))
}

// refuses tells whether a chain does nothing but refuse.
func refuses(c *nft.Chain) bool {
	return c != nil && len(c.Rules) > 0 && !slices.ContainsFunc(c.Rules, func(r nft.Rule) bool {
		switch r[len(r)-1].(type) {
		case nft.Reset, nft.Refuse:
			return false
		}
		return true
	})
}

// isOurs reports whether a statement can be written as it was read: sets without
// a name belong to one rule.
func isOurs(t *nft.Table, s nft.Statement) bool {
	name, _ := nft.SetOf(s)
	_, foreign := s.(nft.Foreign)
	return !foreign && (name == "" || t.Set(name) != nil)
}
