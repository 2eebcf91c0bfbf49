package apply

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// errAfter is an error of a commit that takes place all the same: what is lost is
// the answer.
type errAfter struct{ error }

func (e errAfter) Unwrap() error { return e.error }

// fake is nf_tables in memory: it carries out plans, strictly, and fails every
// so often in the ways in which the kernel does.
type fake struct {
	ruleset    render.Ruleset
	generation uint32
	commits    int
	// fails returns the fault of a commit, or nil. With an errAfter the commit
	// takes place.
	fails func(*Plan) error
	// unreadable, if set, returns why the rules cannot be read, or nil.
	unreadable func() error
	// forgetful, if set, is why the bindings of clients cannot be read.
	forgetful error
	// refuses, if set, returns what is wrong with an element that is added, or
	// nil. blames tells that the fake names it.
	refuses func(*Change) error
	blames  bool
	trials  int
	// seen, if set, is told of each transaction.
	seen func(before, after *render.Ruleset)
}

func newFake() *fake { return &fake{generation: 1, fails: func(*Plan) error { return nil }} }

// flaky fails in a tenth of all calls.
func flaky(r *rand.Rand) func(*Plan) error {
	faults := []error{
		unix.ERESTART, unix.EAGAIN, unix.ENOBUFS, unix.EINTR, errNoAnswer,
		errAfter{unix.ENOBUFS}, errAfter{unix.EINTR}, errAfter{errNoAnswer},
	}
	return func(*Plan) error {
		if r.IntN(10) > 0 {
			return nil
		}
		return faults[r.IntN(len(faults))]
	}
}

func (k *fake) Read() (*render.Ruleset, uint32, error) {
	if k.unreadable != nil {
		if err := k.unreadable(); err != nil {
			return nil, 0, err
		}
	}
	return clone(&k.ruleset), k.generation, nil
}

// refusal returns an error as of [Conn] about the first element that the fake
// does not take.
func (k *fake) refusal(p *Plan) error {
	if k.refuses == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.New == nil {
			continue
		}
		if err := k.refuses(c); err != nil {
			refused := &CommitError{Object: "one of many elements", Err: err}
			if k.blames {
				refused.Object, refused.Set, refused.Element = c.Text(), c.Set, c.New
			}
			return refused
		}
	}
	return nil
}

// Check carries a plan out on a copy.
func (k *fake) Check(p *Plan, generation uint32) error {
	k.trials++
	trial := *k
	trial.ruleset, trial.seen = *clone(&k.ruleset), nil
	_, err := trial.Commit(p, generation)
	return err
}

func (k *fake) Commit(p *Plan, generation uint32) (Size, error) {
	err := cmp.Or(k.fails(p), k.refusal(p))
	if generation != anyGeneration && generation != k.generation {
		err = unix.ERESTART
	}
	var after errAfter
	if err != nil && !errors.As(err, &after) {
		return Size{}, fmt.Errorf("fake: %w", err)
	}
	next := clone(&k.ruleset)
	for i := range p.Changes {
		if err := carryOut(next, &p.Changes[i]); err != nil {
			return Size{}, err
		}
	}
	if k.seen != nil {
		k.seen(&k.ruleset, next)
	}
	k.ruleset = *next
	k.generation++
	k.commits++
	return Size{}, err
}

func (k *fake) Bindings(f model.Family, limit int) ([]*render.Set, error) {
	if k.forgetful != nil {
		return nil, k.forgetful
	}
	var out []*render.Set
	if t := k.ruleset.Table(f); t != nil {
		for _, s := range t.Sets {
			if s.Dynamic {
				o := *s
				o.Elements = slices.Clone(s.Elements[:min(limit, len(s.Elements))])
				out = append(out, &o)
			}
		}
	}
	return out, nil
}

func (k *fake) Unbind(f model.Family, s *render.Set) error {
	if t := k.ruleset.Table(f); t != nil && t.Set(s.Name) != nil {
		there := t.Set(s.Name)
		there.Elements = slices.DeleteFunc(there.Elements, func(e render.Element) bool { return slices.Contains(s.Elements, e) })
	}
	return nil
}

func clone(r *render.Ruleset) *render.Ruleset {
	out := &render.Ruleset{}
	for _, t := range r.Tables {
		c := &render.Table{Family: t.Family}
		for _, s := range t.Sets {
			set := *s
			set.Elements = slices.Clone(s.Elements)
			c.Sets = append(c.Sets, &set)
		}
		for _, ch := range t.Chains {
			chain := *ch
			c.Chains = append(c.Chains, &chain)
		}
		out.Tables = append(out.Tables, c)
	}
	return out
}

// carryOut does what the kernel does for a change, and is as strict.
func carryOut(r *render.Ruleset, c *Change) error {
	t := r.Table(c.Family)
	refuse := func(why string) error { return fmt.Errorf("%s: %s", c.Text(), why) }
	switch {
	case c.Kind() == "table" && c.Verb == Add:
		if t != nil {
			return refuse("exists")
		}
		r.Tables = append(r.Tables, &render.Table{Family: c.Family})
		slices.SortFunc(r.Tables, func(a, b *render.Table) int { return int(a.Family) - int(b.Family) })
	case t == nil:
		return refuse("no table")
	case c.Kind() == "table":
		r.Tables = slices.DeleteFunc(r.Tables, func(o *render.Table) bool { return o == t })
	case c.Kind() == "element":
		return carryOutElement(t, c)
	case c.Chain != nil:
		return carryOutChain(t, c)
	case c.Verb == Add && t.Set(c.Set.Name) == nil:
		s := *c.Set
		s.Elements = nil
		t.Sets = append(t.Sets, &s)
	case c.Verb == Replace && t.Set(c.Set.Name) != nil:
		for _, u := range c.Users {
			t.Chain(u.Name).Rules = nil
		}
		declared := *c.Set
		declared.Elements = nil
		*t.Set(c.Set.Name) = declared
	case c.Verb == Delete && t.Set(c.Set.Name) != nil:
		t.Sets = slices.DeleteFunc(t.Sets, func(s *render.Set) bool { return s.Name == c.Set.Name })
	default:
		return refuse("set exists, or does not")
	}
	return nil
}

func carryOutElement(t *render.Table, c *Change) error {
	s := t.Set(c.Set.Name)
	find := func(e *render.Element) int { return slices.Index(s.Elements, *e) }
	if c.Old != nil {
		i := find(c.Old)
		if i < 0 {
			return fmt.Errorf("%s: no such element", c.Text())
		}
		s.Elements = slices.Delete(s.Elements, i, i+1)
	}
	if c.New != nil {
		if slices.ContainsFunc(s.Elements, func(e render.Element) bool { return e.Key == c.New.Key }) {
			return fmt.Errorf("%s: key exists", c.Text())
		}
		if s.Interval && slices.ContainsFunc(s.Elements, func(e render.Element) bool { return overlap(s, e.Key, c.New.Key) }) {
			return fmt.Errorf("%s: overlaps another element", c.Text())
		}
		if v := c.New.Value.Verdict; v.Action == render.Goto && t.Chain(v.Chain) == nil {
			return fmt.Errorf("%s: no such chain", c.Text())
		}
		s.Elements = append(s.Elements, *c.New)
		s.Sort()
	}
	return nil
}

// overlap reports whether two elements of an interval set have an address in
// common.
func overlap(s *render.Set, a, b render.Key) bool {
	if s.Concat() {
		return a.Frontend() == b.Frontend() && s.Prefix(a, render.Source).Overlaps(s.Prefix(b, render.Source))
	}
	return s.Prefix(a, render.Address).Overlaps(s.Prefix(b, render.Address))
}

func carryOutChain(t *render.Table, c *Change) error {
	chain := t.Chain(c.Chain.Name)
	if (chain == nil) != (c.Verb == Add) {
		return fmt.Errorf("%s: exists, or does not", c.Text())
	}
	switch c.Verb {
	case Add:
		added := *c.Chain
		added.Rules = nil
		t.Chains = append(t.Chains, &added)
	case Replace:
		chain.Rules = c.Chain.Rules
	case Delete:
		if usesChain(t, chain.Name) {
			return fmt.Errorf("%s: %w", c.Text(), unix.EBUSY)
		}
		t.Chains = slices.DeleteFunc(t.Chains, func(o *render.Chain) bool { return o == chain })
	}
	return nil
}

func usesChain(t *render.Table, name string) bool {
	return slices.ContainsFunc(t.Sets, func(s *render.Set) bool {
		return slices.ContainsFunc(s.Elements, func(e render.Element) bool { return e.Value.Verdict.Chain == name })
	})
}
