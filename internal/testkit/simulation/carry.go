package simulation

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// isDone reports whether a change is no error for the kernel although there is nothing to do: an element or a set that is
// there already, and an interval to delete that is not.
func isDone(r *nft.Ruleset, c *plan.Change) bool {
	t := r.Table(c.Family)
	if t == nil || c.Set == nil || t.Set(c.Set.Name) == nil {
		return false
	}
	s := t.Set(c.Set.Name)
	if c.Kind() != "element" {
		return c.Verb == plan.Add && s.Same(c.Set)
	}
	switch {
	case c.Old == nil:
		there := find(s, c.New)
		return there != nil && there.Value == c.New.Value
	case c.New == nil:
		return s.Interval && find(s, c.Old) == nil
	}
	return false
}

// find returns the element of a set with the key of another one; nil: there is none.
func find(s *nft.Set, e *nft.Element) *nft.Element {
	i, found := slices.BinarySearchFunc(s.Elements, e.Key, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	if !found {
		return nil
	}
	return &s.Elements[i]
}

// asHeld returns the deletion of an element as the kernel has it, which looks for the key alone.
func asHeld(r *nft.Ruleset, c *plan.Change) (held *plan.Change, differs bool) {
	t := r.Table(c.Family)
	if t == nil || c.Kind() != "element" || c.Old == nil || t.Set(c.Set.Name) == nil {
		return c, false
	}
	there := find(t.Set(c.Set.Name), c.Old)
	if there == nil || *there == *c.Old {
		return c, false
	}
	out, copied := *c, *there
	out.Old = &copied
	return &out, true
}

// named is a set or a chain of a table.
type named struct {
	model.Family
	name string
}

// cloneFor returns tables that have what a transaction changes in memory of its own.
func cloneFor(r *nft.Ruleset, p *plan.Plan) *nft.Ruleset {
	sets, chains := make(map[named]bool), make(map[named]bool)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Set != nil {
			sets[named{c.Family, c.Set.Name}] = true
		}
		if c.Chain != nil {
			chains[named{c.Family, c.Chain.Name}] = true
		}
		for _, u := range c.Users {
			chains[named{c.Family, u.Name}] = true
		}
	}
	out := &nft.Ruleset{}
	for _, t := range r.Tables {
		next := &nft.Table{Family: t.Family, Sets: slices.Clone(t.Sets), Chains: slices.Clone(t.Chains)}
		for n, s := range next.Sets {
			if sets[named{t.Family, s.Name}] {
				own := *s
				own.Elements = slices.Clone(s.Elements)
				next.Sets[n] = &own
			}
		}
		for n, c := range next.Chains {
			if chains[named{t.Family, c.Name}] {
				own := *c
				next.Chains[n] = &own
			}
		}
		out.Tables = append(out.Tables, next)
	}
	return out
}

// carryOut carries out a transaction, or nothing of it.
func (t *Tables) carryOut(p *plan.Plan) error {
	next := cloneFor(&t.current, p)
	for i := range p.Changes {
		if c := &p.Changes[i]; isDone(next, c) {
			continue
		}
		c, differs := asHeld(next, &p.Changes[i])
		if differs && !t.expected && t.broken == nil {
			t.broken = fmt.Errorf("the process did not know what the kernel holds: %s", p.Changes[i].Text())
		}
		if err := workload.CarryOut(next, c); err != nil {
			return &kernel.CommitError{Object: p.Changes[i].Text(), Err: refusal{err}}
		}
	}
	var before *bytecode.Ruleset
	if t.Strict {
		before = t.rules.Clone()
	}
	if err := codec.CarryOutPhase(p, &t.rules); t.Strict && err != nil {
		t.rules = *before
		return &kernel.CommitError{Object: "message", Err: refusal{err}}
	} else if err != nil && t.broken == nil {
		t.broken = fmt.Errorf("messages of a transaction cannot be carried out: %w", err)
	}
	t.current = *next
	t.generation++
	return nil
}

// refusal is an error of a model that has no errno.
type refusal struct{ error }

func (r refusal) Is(target error) bool {
	if errors.Is(r.error, unix.EBUSY) {
		return target == unix.EBUSY
	}
	return target == unix.EEXIST
}

// hashes are compared within one program alone.
var hashSeed = maphash.MakeSeed()

// hashOf returns a hash of what a transaction does, in whatever order.
func hashOf(p *plan.Plan) (sum uint64) {
	type element struct {
		verb   plan.Verb
		family model.Family
		set    string
		old    bool
		nft.Element
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind() != "element" {
			sum += maphash.String(hashSeed, c.Text())
			continue
		}
		if c.Old != nil {
			sum += maphash.Comparable(hashSeed, element{c.Verb, c.Family, c.Set.Name, true, *c.Old})
		}
		if c.New != nil {
			sum += maphash.Comparable(hashSeed, element{c.Verb, c.Family, c.Set.Name, false, *c.New})
		}
	}
	return sum
}
