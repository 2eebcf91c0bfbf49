package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// bridgeChange protects packets in flight while change replaces a map or a whole table
// by another one of its name. Such a packet may meet the old rules after the map
// has lost its elements. Or it passes a new base chain that has no rules yet, and
// then the old one, which has none left: of two chains with the same hook and
// priority the new one comes first. The packet would leave untranslated, or be
// refused.
//
// So until the next transaction there are late base chains, behind the others,
// with the new rules. From the transaction before on the table refuses nothing for
// lack of a frontend, so that the packet reaches the late chains. (Without this, on
// 6.18, 8 of 144,000 new flows were lost in 3,000 successive changes of a table.)
//
// The argument of change is the table as it is by then.
func (p *Plan) bridgeChange(cur, want *nft.Table, change func(cur *nft.Table)) {
	there := p.stopRefusals(cur)
	first := len(p.Changes)
	change(there)
	for i := range p.Changes[first:] {
		c := &p.Changes[first+i]
		if c.Chain == nil || c.Verb == Add || c.fills {
			continue
		}
		if before := cur.Chain(c.Chain.Name); there.Chain(before.Name) != before {
			c.setOldRules(before.Rules)
		}
	}
	for _, c := range lateChains(want) {
		p.Changes = append(p.Changes,
			Change{Verb: Add, Family: want.Family, Chain: c, passing: turn},
			Change{Verb: Replace, Family: want.Family, Chain: c, passing: turn},
			Change{Verb: Delete, Family: want.Family, Chain: c, OldRules: c.Rules, passing: tidy})
	}
}

// stopRefusals lets a table refuse nothing for lack of a frontend, in the transaction before the
// others, and returns the table as it is by then. The kernel gives chains their new rules
// one after the other: where a table ends, a packet may pass a chain that translates no
// more, and then one that still refuses.
func (p *Plan) stopRefusals(cur *nft.Table) *nft.Table {
	there := *cur
	there.Chains = slices.Clone(cur.Chains)
	for i, c := range cur.Chains {
		if lenient := withoutRefusals(cur, c); len(lenient.Rules) < len(c.Rules) {
			there.Chains[i] = lenient
			p.Changes = append(p.Changes,
				Change{Verb: Replace, Family: cur.Family, Chain: lenient, OldRules: c.Rules, passing: prepare})
		}
	}
	return &there
}

// setOldRules sets the old rules of a chain to those from before a bridge. The change is
// temporary if it restores them.
func (c *Change) setOldRules(before []nft.Rule) {
	c.OldRules = before
	if c.Verb == Replace && equalRules(before, c.Chain.Rules, c.Family) {
		c.passing = turn
	}
}

// resumeBridge corrects the old rules of a chain in the changes from an index on: an
// interrupted bridge had changed them.
func (p *Plan) resumeBridge(before *Change, from int) {
	for i := range p.Changes[from:] {
		if c := &p.Changes[from+i]; c.Chain != nil && c.passing == 0 && c.Family == before.Family && c.Chain.Name == before.Chain.Name {
			c.setOldRules(before.OldRules)
		}
	}
}

// lateChains returns copies of the base chains of a table that come right behind
// them.
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

// withoutRefusals returns a chain without the rules that refuse addresses of ours
// without a frontend. A chain with foreign statements is returned unchanged.
func withoutRefusals(t *nft.Table, c *nft.Chain) *nft.Chain {
	if slices.ContainsFunc(slices.Concat(c.Rules...), func(s nft.Statement) bool {
		name, _ := nft.SetOf(s)
		return isForeign(s) || name != "" && t.Set(name) == nil // anonymous sets belong to one rule
	}) {
		return c
	}
	out := *c
	out.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r nft.Rule) bool { return refusesAddress(t, r) })
	return &out
}

// refusesAddress recognises a rule such as "ip daddr @cluster-ips goto refuse". Echo requests that an
// address does not answer are no packets without a frontend.
func refusesAddress(t *nft.Table, r nft.Rule) bool {
	if len(r) != 2 {
		return false
	}
	in, ok := r[0].(nft.InSet)
	if !ok || in.Not || len(in.Key) != 1 || in.Key[0] != nft.DestinationAddress || in.Set == nft.EchoInsideSet {
		return false
	}
	v, _ := r[1].(nft.Verdict)
	_, refusal := v.Refuses()
	return refusal || v.Action == nft.Goto && refusesAll(t.Chain(v.Chain))
}

func refusesAll(c *nft.Chain) bool {
	return c != nil && len(c.Rules) > 0 && !slices.ContainsFunc(c.Rules, func(r nft.Rule) bool {
		last := r[len(r)-1]
		return last != nft.Statement(nft.Reset) && last != nft.Statement(nft.Refuse)
	})
}

// canRedeclare reports whether a map of cur differs from the wanted one only in its
// data or counters, and no foreign chain may refer to it: the kernel does not delete a map
// that is in use. A dynamic map would lose its clients in any case.
func canRedeclare(cur, want *nft.Table, s *nft.Set) bool {
	like := *cur.Set(s.Name)
	like.Counters, like.Data = s.Counters, s.Data
	return !s.Dynamic && like.Same(s) && !slices.ContainsFunc(chainsUsing(cur, s.Name), func(c *nft.Chain) bool { return want.Chain(c.Name) == nil })
}

// redeclaresMap reports whether the change redeclares a map, which empties it.
func (c *Change) redeclaresMap() bool { return c.Verb == Replace && c.Set != nil && c.New == nil }

// redeclareMap replaces a map and, in the same transaction, the rules of all chains
// that refer to it. Other maps keep the bindings of clients, and other chains the
// counters of round robin.
func (d *tableDiff) redeclareMap(cur *nft.Table, want *nft.Set) {
	c := Change{Verb: Replace, Family: d.family, Set: want, Users: chainsUsing(cur, want.Name)}
	was := cur.Set(want.Name)
	c.recounts = was.Counters != want.Counters && slices.Equal(was.Data, want.Data)
	d.declare = append(d.declare, c)
	for _, u := range c.Users {
		d.emptied = append(d.emptied, u.Name)
	}
}

func chainsUsing(t *nft.Table, set string) []*nft.Chain {
	var out []*nft.Chain
	for _, c := range t.Chains {
		if slices.ContainsFunc(slices.Concat(c.Rules...), func(s nft.Statement) bool {
			name, _ := nft.SetOf(s)
			return name == set || isForeign(s)
		}) {
			out = append(out, c)
		}
	}
	return out
}

func isForeign(s nft.Statement) bool {
	_, foreign := s.(nft.Foreign)
	return foreign
}
