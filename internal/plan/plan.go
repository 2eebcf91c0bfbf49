package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Plan is the difference between two rulesets, in the order in which a
// transaction carries it out. An empty plan means that they are equal.
type Plan struct {
	Changes []Change
	// services are maps that name the service port behind a frontend; the
	// first one that knows it counts.
	services []*nft.Set
	// rebuilt are the families whose table makes way for another one.
	Rebuilt []model.Family
}

// Empty tells whether there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Verb is what a change does.
type Verb uint8

const (
	Add Verb = iota
	Delete
	// Replace gives an existing chain other rules, an existing map element
	// another value or comment, or an existing map another declaration.
	Replace
)

func (v Verb) String() string { return [...]string{"add", "delete", "change"}[v] }

// Change is one step of a plan. It speaks of an element if Old or New is set,
// else of a chain or of a set, else of a whole table, which Delete empties and
// removes.
type Change struct {
	Verb   Verb
	Family model.Family

	Chain    *nft.Chain // Replace: with the new rules
	OldRules []nft.Rule // Replace: the rules before; Delete: those of the chain

	// Users are the chains whose rules refer to the map that is declared anew.
	// They lose their rules, and the map its elements: later changes bring new
	// ones.
	Users []*nft.Chain

	// Passing is what lasts only while a table or a map makes way for another
	// one of its name: see [Plan.bridge].
	Passing bool

	Set *nft.Set     // of the element, or the object itself
	Old *nft.Element // Delete and Replace
	New *nft.Element // Add and Replace
	// Timeout of a binding of a client to an endpoint that is added.
	Timeout time.Duration
}

// service names the service port behind the frontend of an element, or returns
// nothing.
func (p *Plan) service(c *Change) string {
	if c.Kind() != "element" {
		return ""
	}
	f := cmp.Or(c.New, c.Old).Key.Frontend()
	for _, s := range p.services {
		if s == nil {
			continue
		}
		if e, ok := s.Find(f); ok {
			return e.Comment
		}
	}
	return ""
}

// Kind names the kind of object that changes.
func (c Change) Kind() string {
	switch {
	case c.Old != nil || c.New != nil:
		return "element"
	case c.Set != nil:
		return c.Set.Keyword()
	case c.Chain != nil:
		return "chain"
	}
	return "table"
}

// Path names the table and, within it, the set or chain that changes.
func (c Change) Path() string {
	path := nft.FamilyKeyword(c.Family) + " " + nft.TableName
	switch {
	case c.Set != nil:
		return path + " " + c.Set.Name
	case c.Chain != nil:
		return path + " " + c.Chain.Name
	}
	return path
}

// Text says in one line what the change does.
func (c Change) Text() string {
	if c.Kind() != "element" {
		return fmt.Sprintf("%s %s %s", c.Verb, c.Kind(), c.Path())
	}
	e := cmp.Or(c.New, c.Old)
	return fmt.Sprintf("%s element { %s } of %s %s", c.Verb, c.Set.ElementText(e), c.Set.Keyword(), c.Path())
}

// Count returns the number of changes of a verb, without those that pass. A
// chain that is added and then filled counts once.
func (p *Plan) Count(v Verb) int {
	n := 0
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Verb == v && !c.Passing && !c.fillsNewChain() {
			n++
		}
	}
	return n
}

// fillsNewChain tells whether the change gives a new chain its first rules.
func (c Change) fillsNewChain() bool {
	return c.Kind() == "chain" && c.Verb == Replace && len(c.OldRules) == 0
}

// Has tells whether the plan makes a change.
func (p *Plan) Has(c Change) bool {
	return slices.ContainsFunc(p.Changes, func(o Change) bool {
		return o.Verb == c.Verb && o.Family == c.Family && o.Text() == c.Text()
	})
}

// Removes tells whether the plan deletes chains or sets.
func (p *Plan) Removes() bool {
	return slices.ContainsFunc(p.Changes, Change.removes)
}

// WithoutRemovals returns the plan without the deletion of chains and sets.
func (p *Plan) WithoutRemovals() *Plan {
	return &Plan{Changes: slices.DeleteFunc(slices.Clone(p.Changes), Change.removes), services: p.services}
}

// Removals returns the deletion of chains and sets alone.
func (p *Plan) Removals() *Plan {
	return &Plan{Changes: slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return !c.removes() }), services: p.services}
}

// WithoutIdleLanes returns the plan without the deletion of lanes.
func (p *Plan) WithoutIdleLanes() *Plan {
	isIdle := func(c Change) bool {
		return c.Verb == Delete && c.Chain != nil && !c.Passing && nft.IsLane(c.OldRules)
	}
	if !slices.ContainsFunc(p.Changes, isIdle) {
		return p
	}
	out := *p
	out.Changes = slices.DeleteFunc(slices.Clone(p.Changes), isIdle)
	return &out
}

func (c Change) removes() bool {
	return c.Verb == Delete && c.Kind() != "element" && c.Kind() != "table"
}

// RemovalFamilies returns the families in which the plan deletes chains or
// sets.
func (p *Plan) RemovalFamilies() []model.Family {
	var out []model.Family
	for _, f := range model.Families {
		if slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Family == f && c.removes() }) {
			out = append(out, f)
		}
	}
	return out
}

// Then returns the plan that is p and next, one after the other. Either may be
// nil.
func (p *Plan) Then(next *Plan) *Plan {
	switch {
	case p == nil:
		return next
	case next == nil:
		return p
	}
	return Merge(p, next)
}

func Merge(a, b *Plan) *Plan {
	switch {
	case a.Empty():
		return b
	case b.Empty():
		return a
	}
	return &Plan{Changes: slices.Concat(a.Changes, b.Changes), services: slices.Concat(a.services, b.services)}
}
