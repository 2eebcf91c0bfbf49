package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// canRedeclare tells whether a map of cur differs from the wanted one in
// nothing but its counters, and nobody else has put a chain into our table that
// may refer to it: the kernel deletes no map that is in use. The clients in a
// dynamic map would be gone in any case.
func canRedeclare(cur, want *nft.Table, s *nft.Set) bool {
	like := *cur.Set(s.Name)
	like.Counters = s.Counters
	return !s.Dynamic && like.Same(s) && !slices.ContainsFunc(users(cur, s.Name), func(c *nft.Chain) bool { return want.Chain(c.Name) == nil })
}

// redeclares tells whether a map that stays has to be declared anew.
func redeclares(cur, want *nft.Table) bool {
	return slices.ContainsFunc(want.Sets, func(s *nft.Set) bool {
		o := cur.Set(s.Name)
		return o != nil && !o.Same(s)
	})
}

// redeclare replaces a map and, as they are bound to it, the rules of all
// chains that refer to it, in the same transaction. Other maps, and so the
// bindings of clients, and other chains, and so the counters of round robin,
// stay.
func (d *tableDiff) redeclare(cur *nft.Table, want *nft.Set) {
	c := Change{Verb: Replace, Family: d.family, Set: want, Users: users(cur, want.Name)}
	d.declare = append(d.declare, c)
	for _, u := range c.Users {
		d.emptied = append(d.emptied, u.Name)
	}
}

// redeclares tells whether the change gives a map another declaration, which
// empties it. Chains that refer to it there may be none.
func (c *Change) redeclares() bool { return c.Verb == Replace && c.Set != nil && c.New == nil }

// users returns the chains whose rules refer to a set, or may do so.
func users(t *nft.Table, set string) []*nft.Chain {
	var out []*nft.Chain
	for _, c := range t.Chains {
		if slices.ContainsFunc(slices.Concat(c.Rules...), func(s nft.Statement) bool { return refersTo(s, set) }) {
			out = append(out, c)
		}
	}
	return out
}

func refersTo(s nft.Statement, set string) bool {
	name, _ := nft.SetOf(s)
	_, foreign := s.(nft.Foreign)
	return name == set || foreign
}
