package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Plan is the difference between two rulesets, in the order in which a
// transaction carries it out. An empty plan means that they are equal.
type Plan struct {
	Changes []Change
	// Loaded is a number of elements that were added, and that Changes leaves out to
	// save memory.
	Loaded int
	// services are maps that name the service port of a frontend; the first one
	// with the frontend counts.
	services []*nft.Set
	Rebuilt  []model.Family // families whose table is replaced
	Idle     int            // chains of unused lanes that stay, and that Changes leaves out
}

func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

type Verb uint8

const (
	Add Verb = iota
	Delete
	// Replace gives an existing chain other rules, an existing map element
	// another value or comment, or an existing map another declaration.
	Replace
)

func (v Verb) String() string { return [...]string{"add", "delete", "change"}[v] }

// Change is one step of a plan. It is about an element if Old or New is set, else
// about a chain or set, else about a whole table, which Delete empties and removes.
type Change struct {
	Verb   Verb
	Family model.Family

	Chain    *nft.Chain // Replace: with the new rules
	OldRules []nft.Rule // Replace and Delete: the rules before

	// Users are the chains whose rules refer to a redeclared map. They lose their
	// rules, and the map its elements: later changes add new ones.
	Users []*nft.Chain

	recounts bool // a redeclared map differs in its counters only

	fills   bool // the first rules of a chain that the plan adds
	narrows bool // a frontend leads to fewer slots, before others take these: see narrowClasses
	// passing is the phase of a temporary change, made while a table or map is
	// replaced, or of the change that ends it; zero: neither. See [Plan.bridgeChange].
	passing phase

	Set     *nft.Set      // of the element, or the object itself
	Old     *nft.Element  // Delete and Replace
	New     *nft.Element  // Add and Replace
	Timeout time.Duration // of the binding of a client that is added
}

// Recounted returns a function that reports whether an element is added only because its map
// begins or ceases to count.
func (p *Plan) Recounted() func(*Change) bool {
	type place struct {
		family model.Family
		set    string
	}
	maps := make(map[place]bool)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.recounts {
			maps[place{c.Family, c.Set.Name}] = true
		}
	}
	return func(c *Change) bool { return c.Verb == Add && len(maps) > 0 && maps[place{c.Family, c.Set.Name}] }
}

// ServicePort names the service port of the frontend of an element as its comment
// does; empty if unknown.
func (p *Plan) ServicePort(c *Change) string {
	if c.Kind() != "element" {
		return ""
	}
	f := c.elementKey().Frontend()
	for _, s := range p.services {
		if s == nil || s.HasRanges() != c.Set.HasRanges() {
			continue
		}
		if e, ok := s.Find(f); ok {
			return e.Comment
		}
	}
	return ""
}

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

func (c Change) Text() string {
	if c.Kind() != "element" {
		return fmt.Sprintf("%s %s %s", c.Verb, c.Kind(), c.Path())
	}
	e := cmp.Or(c.New, c.Old)
	return fmt.Sprintf("%s element { %s } of %s %s", c.Verb, c.Set.ElementText(e), c.Set.Keyword(), c.Path())
}

// Count returns the number of changes of a verb, without temporary ones. A chain
// that is added and then filled counts once.
func (p *Plan) Count(v Verb) int {
	n := 0
	for c := range p.lasting() {
		if c.Verb == v && !c.fills {
			n++
		}
	}
	if v == Add {
		n += p.Loaded
	}
	return n
}

// Len returns the number of changes that Print lists, and of those that were loaded.
func (p *Plan) Len() int { return p.Count(Add) + p.Count(Replace) + p.Count(Delete) }

// Has reports whether the plan makes a change.
func (p *Plan) Has(c Change) bool {
	return slices.ContainsFunc(p.Changes, func(o Change) bool {
		return o.Verb == c.Verb && o.Family == c.Family && o.passing == c.passing && o.Text() == c.Text()
	})
}

// Removes reports whether the plan deletes chains or sets.
func (p *Plan) Removes() bool { return slices.ContainsFunc(p.Changes, Change.removesObject) }

// WithoutRemovals returns the plan without the deletion of chains and sets.
func (p *Plan) WithoutRemovals() *Plan { return p.withoutChanges(Change.removesObject) }

// Removals returns only the deletion of chains and sets.
func (p *Plan) Removals() *Plan {
	return p.withoutChanges(func(c Change) bool { return !c.removesObject() })
}

// WithoutIdleLanes returns the plan without the deletion of lanes.
func (p *Plan) WithoutIdleLanes() *Plan {
	idle := 0
	out := p.withoutChanges(func(c Change) bool {
		isChain := c.Chain != nil && nft.IsLane(c.OldRules)
		isLane := isChain || c.Old != nil && slices.Contains(nft.LaneMaps, c.Set.Name)
		if c.Verb != Delete || !isLane || c.passing != 0 {
			return false
		}
		if isChain {
			idle++
		}
		return true
	})
	out.Idle = idle
	return out
}

func (p *Plan) withoutChanges(is func(Change) bool) *Plan {
	out := *p
	out.Changes = slices.DeleteFunc(slices.Clone(p.Changes), is)
	return &out
}

func (c Change) removesObject() bool {
	return c.Verb == Delete && c.Kind() != "element" && c.Kind() != "table"
}

// Record adds what another plan did, with the number of its elements alone.
func (p *Plan) Record(o *Plan) {
	for i := range o.Changes {
		if o.Changes[i].New != nil {
			p.Loaded++
		} else {
			p.Changes = append(p.Changes, o.Changes[i])
		}
	}
}

// Merge returns the plan that carries out a, and then b.
func Merge(a, b *Plan) *Plan {
	switch {
	case a.Empty():
		return b
	case b.Empty():
		return a
	}
	out := &Plan{Changes: slices.Concat(a.Changes, b.Changes), services: slices.Concat(a.services, b.services)}
	for i := range a.Changes {
		if c := &a.Changes[i]; c.Chain != nil && (c.passing == prepare || c.passing == turn && c.Verb == Replace) {
			out.resumeBridge(c, len(a.Changes))
		}
	}
	return out
}

// Revert takes what the plan has changed of elements back from tables in the kernel, except where another
// program has changed it again.
func (p *Plan) Revert(held *nft.Ruleset) {
	changed := make(map[*nft.Set]map[nft.Key]nft.Element)
	inOrder := slices.Clone(p.Changes) // the temporary changes of elements come before those that stay
	slices.SortStableFunc(inOrder, func(a, b Change) int { return cmp.Compare(b.passing, a.passing) })
	for _, c := range slices.Backward(inOrder) {
		t := held.Table(c.Family)
		if c.Kind() != "element" || c.Set.Dynamic || t == nil || t.Set(c.Set.Name) == nil {
			continue
		}
		s := t.Set(c.Set.Name)
		if changed[s] == nil {
			changed[s] = make(map[nft.Key]nft.Element, len(s.Elements))
			for _, e := range s.Elements {
				changed[s][e.Key] = e
			}
		}
		switch now, is := changed[s][c.elementKey()]; {
		case is != (c.New != nil) || is && now != *c.New:
		case c.Old != nil:
			changed[s][c.elementKey()] = *c.Old
		default:
			delete(changed[s], c.elementKey())
		}
	}
	for s, elements := range changed {
		s.Elements = slices.Collect(maps.Values(elements))
		s.Sort()
	}
}

// NamesOneOf reports whether a comment names one of some Services. Long names are cut.
func NamesOneOf(services map[model.ServiceName]bool, comment string) bool {
	if comment == "" {
		return false
	}
	port, _ := nft.ParseComment(comment)
	if services[port.Service] {
		return true
	}
	start, cut := strings.CutSuffix(port.Service.Name, "...")
	if !cut {
		return false
	}
	for s := range services {
		if s.Namespace == port.Service.Namespace && strings.HasPrefix(s.Name, start) {
			return true
		}
	}
	return false
}
