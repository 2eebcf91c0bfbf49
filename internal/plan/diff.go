package plan

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Diff returns the plan that turns current into desired.
//
//	current   desired            plan
//	-         table              add the table with all it holds
//	table     -                  delete the table
//	map       counters differ    redeclare the map, with the rules that refer to it
//	set       declared unlike    replace the table
//	chain     hooked unlike      replace the table
//	table     foreign            replace the table
//	-         set, chain         add it
//	set,chain -                  delete it, its elements or rules first
//	chain     other rules        replace all rules of the chain
//	element   other value        replace the element
//	element   -                  delete it
//	-         element            add it
//
// Steps are in the order that the kernel needs: an object is added before what
// refers to it, and deleted after it; intervals are deleted before those that may
// overlap them are added.
func Diff(current, desired *nft.Ruleset) *Plan { return DiffOutdated(current, desired, nil) }

// DiffOutdated redeclares the tables of the outdated families in any case.
func DiffOutdated(current, desired *nft.Ruleset, outdated []model.Family) *Plan {
	return (&Plan{}).diffTables(current, desired, outdated)
}

// DiffAgain is like [Diff], in the memory of a plan that is no longer in use.
func (p *Plan) DiffAgain(current, desired *nft.Ruleset) *Plan {
	*p = Plan{Changes: p.Changes[:0]}
	return p.diffTables(current, desired, nil)
}

func (p *Plan) diffTables(current, desired *nft.Ruleset, outdated []model.Family) *Plan {
	for _, f := range model.Families {
		cur, want := current.Table(f), desired.Table(f)
		switch {
		case cur == nil && want == nil:
			continue
		case want == nil:
			p.stopRefusals(cur)
			p.Changes = append(p.Changes, Change{Verb: Delete, Family: f})
			continue
		case cur == nil:
			cur = &nft.Table{Family: f}
			p.Changes = append(p.Changes, Change{Verb: Add, Family: f})
			diffTable(p, cur, want)
		case slices.Contains(outdated, f) || !canReconcile(cur, want):
			p.bridgeChange(cur, want, func(*nft.Table) {
				p.Changes = append(p.Changes, Change{Verb: Delete, Family: f}, Change{Verb: Add, Family: f})
				diffTable(p, &nft.Table{Family: f}, want)
			})
			p.Rebuilt = append(p.Rebuilt, f)
		case slices.ContainsFunc(want.Sets, func(s *nft.Set) bool { o := cur.Set(s.Name); return o != nil && !o.Same(s) }):
			p.bridgeChange(cur, want, func(cur *nft.Table) { diffTable(p, cur, want) })
		default:
			diffTable(p, cur, want)
		}
		p.services = slices.Grow(p.services, 2*len(nft.ServiceMaps))
		for _, services := range nft.ServiceMaps {
			p.services = append(p.services, want.Set(services), cur.Set(services))
		}
	}
	return p
}

// canReconcile reports whether cur can be changed into want step by step. The
// declaration of a set and the hook of a chain cannot be changed in place, but
// clients must not lose their bindings because counters are switched.
func canReconcile(cur, want *nft.Table) bool {
	if cur.Foreign {
		return false
	}
	for _, s := range want.Sets {
		if o := cur.Set(s.Name); o != nil && !o.Same(s) && !canRedeclare(cur, want, s) {
			return false
		}
	}
	for _, c := range want.Chains {
		if o := cur.Chain(c.Name); o != nil && !o.Same(c) {
			return false
		}
	}
	return true
}

func diffTable(p *Plan, cur, want *nft.Table) {
	d := tableDiff{family: want.Family}
	for _, s := range want.Sets {
		d.set(cur, s)
	}
	for _, s := range cur.Sets {
		if want.Set(s.Name) == nil {
			d.remove = append(d.remove, Change{Verb: Delete, Family: d.family, Set: s})
		}
	}
	for _, c := range want.Chains {
		d.diffChain(cur.Chain(c.Name), c)
	}
	for _, c := range cur.Chains {
		if want.Chain(c.Name) == nil {
			removal := Change{Verb: Delete, Family: d.family, Chain: c, OldRules: c.Rules}
			if slices.ContainsFunc(lateChains(want), c.Same) { // a bridge has left it
				removal.passing = tidy
			}
			d.remove = append(d.remove, removal)
		}
	}
	p.Changes = slices.Grow(p.Changes, len(d.declare)+len(d.rules)+countGrowth(cur, want)+len(d.remove))
	p.Changes = append(append(p.Changes, d.declare...), d.rules...)
	first := len(p.Changes)
	for _, s := range want.Sets {
		p.diffSet(cur, want, s)
	}
	if !slices.ContainsFunc(d.declare, func(c Change) bool { return c.redeclaresMap() }) {
		p.narrowClasses(first, cur, want)
	}
	p.Changes = append(p.Changes, d.remove...)
}

// countGrowth returns by how many elements the sets grow: most of a large plan.
func countGrowth(cur, want *nft.Table) int {
	n := 0
	for _, s := range want.Sets {
		n += len(s.Elements)
		if old := cur.Set(s.Name); old != nil && !s.Dynamic {
			n -= min(len(old.Elements), len(s.Elements))
		}
	}
	return n
}

// tableDiff collects the changes of one table by their place in the transaction.
// Elements come between rules and removals.
type tableDiff struct {
	family  model.Family
	declare []Change // new sets and chains
	// rules come before the elements: when a rule is bound to a map the kernel
	// visits all its elements (measured: loading 10,000 services of 4 endpoints
	// takes 161 ms instead of 190 ms).
	rules   []Change
	remove  []Change // unused sets and chains
	emptied []string // chains that lose their rules before
}

func (d *tableDiff) set(cur *nft.Table, want *nft.Set) {
	switch old := cur.Set(want.Name); {
	case old == nil:
		d.declare = append(d.declare, Change{Verb: Add, Family: d.family, Set: want})
	case !want.Dynamic && !old.Same(want):
		d.redeclareMap(cur, want)
	}
}

func (p *Plan) diffSet(cur, want *nft.Table, s *nft.Set) {
	switch old := cur.Set(s.Name); {
	case s.Dynamic: // its elements are state
	case old == nil || !old.Same(s):
		p.diffElements(want.Family, s, nil, s.Elements)
	default:
		p.diffElements(want.Family, s, old.Elements, s.Elements)
	}
}

// diffElements merges two lists of elements that are sorted by key.
func (p *Plan) diffElements(f model.Family, set *nft.Set, cur, want []nft.Element) {
	if sharesMemory(cur, want) {
		return
	}
	if first := len(p.Changes); set.Interval {
		defer func() { deletionsFirst(p.Changes[first:]) }()
	}
	for len(cur) > 0 || len(want) > 0 {
		order := 0
		switch {
		case len(cur) == 0:
			order = 1
		case len(want) == 0:
			order = -1
		default:
			order = cur[0].Key.Compare(want[0].Key)
		}
		c := Change{Family: f, Set: set}
		if order <= 0 {
			c.Verb, c.Old, cur = Delete, &cur[0], cur[1:]
		}
		if order >= 0 {
			c.Verb, c.New, want = Add, &want[0], want[1:]
		}
		if order == 0 {
			c.Verb = Replace
			if *c.Old == *c.New {
				continue
			}
		}
		p.Changes = append(p.Changes, c)
	}
}

func (d *tableDiff) diffChain(cur, want *nft.Chain) {
	switch {
	case cur == want && len(d.emptied) == 0:
	case cur == nil:
		d.declare = append(d.declare, Change{Verb: Add, Family: d.family, Chain: want})
		if len(want.Rules) > 0 {
			d.rules = append(d.rules, Change{Verb: Replace, Family: d.family, Chain: want, fills: true})
		}
	case slices.Contains(d.emptied, want.Name) || !equalRules(cur.Rules, want.Rules, d.family):
		d.rules = append(d.rules, Change{Verb: Replace, Family: d.family, Chain: want, OldRules: cur.Rules})
	}
}

func equalRules(a, b []nft.Rule, f model.Family) bool {
	return slices.EqualFunc(a, b, func(x, y nft.Rule) bool { return x.Text(f) == y.Text(f) })
}

// deletionsFirst sorts the changes of an interval set. They may be in several
// messages, and the deletion of an element must not come after the addition of one
// that overlaps it. The kernel refuses an element that starts or ends in the old
// one. It accepts one that encloses the old one, but then deletes the new one
// instead, because it looks deletions up by the first address. (Seen on 6.18, with
// pipapo sets.)
func deletionsFirst(changes []Change) {
	rank := [...]int{Delete: 0, Replace: 1, Add: 2}
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(rank[a.Verb], rank[b.Verb]) })
}
