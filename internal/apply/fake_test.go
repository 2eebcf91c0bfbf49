package apply

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/workload"
	"golang.org/x/sys/unix"
)

// errAfter is an error of a commit that takes place all the same: what is lost is
// the answer.
type errAfter struct{ error }

func (e errAfter) Unwrap() error { return e.error }

// fake is nf_tables in memory: it carries out plans, strictly, and fails every
// so often in the ways in which the kernel does.
type fake struct {
	ruleset    nft.Ruleset
	generation uint32
	commits    int
	// fails returns the fault of a commit, or nil. With an errAfter the commit
	// takes place.
	fails func(*plan.Plan) error
	// unreadable, if set, returns why the rules cannot be read, or nil.
	unreadable func() error
	// forgetful, if set, is why the bindings of clients cannot be read.
	forgetful error
	// refuses, if set, returns what is wrong with an element that is added, or
	// nil. blames tells that the fake names it.
	refuses func(*plan.Change) error
	blames  bool
	trials  int
	// seen, if set, is told of each transaction.
	seen func(before, after *nft.Ruleset)
}

func newFake() *fake { return &fake{generation: 1, fails: func(*plan.Plan) error { return nil }} }

// flaky fails in a tenth of all calls, with these faults and others that pass.
func flaky(r *rand.Rand, faults ...error) func(*plan.Plan) error {
	faults = append(faults,
		unix.ERESTART, unix.EAGAIN, unix.ENOBUFS, unix.EINTR, kernel.ErrNoAnswer,
		errAfter{unix.ENOBUFS}, errAfter{unix.EINTR}, errAfter{kernel.ErrNoAnswer},
	)
	return func(*plan.Plan) error {
		if r.IntN(10) > 0 {
			return nil
		}
		return faults[r.IntN(len(faults))]
	}
}

func (k *fake) Read() (*nft.Ruleset, uint32, error) {
	if k.unreadable != nil {
		if err := k.unreadable(); err != nil {
			return nil, 0, err
		}
	}
	return workload.Clone(&k.ruleset), k.generation, nil
}

// refusal returns an error as of [Conn] about the first element that the fake
// does not take.
func (k *fake) refusal(p *plan.Plan) error {
	if k.refuses == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.New == nil {
			continue
		}
		if err := k.refuses(c); err != nil {
			refused := &kernel.CommitError{Object: "one of many elements", Err: err}
			if k.blames {
				refused.Object, refused.Set, refused.Element = c.Text(), c.Set, c.New
			}
			return refused
		}
	}
	return nil
}

// Check carries a plan out on a copy.
func (k *fake) Check(p *plan.Plan, generation uint32) error {
	k.trials++
	trial := *k
	trial.ruleset, trial.seen = *workload.Clone(&k.ruleset), nil
	_, err := trial.Commit(p, generation)
	return err
}

func (k *fake) Commit(p *plan.Plan, generation uint32) (kernel.Size, error) {
	err := cmp.Or(k.fails(p), k.refusal(p))
	if generation != kernel.AnyGeneration && generation != k.generation {
		err = unix.ERESTART
	}
	var after errAfter
	if err != nil && !errors.As(err, &after) {
		return kernel.Size{}, fmt.Errorf("fake: %w", err)
	}
	next := workload.Clone(&k.ruleset)
	for i := range p.Changes {
		if err := workload.CarryOut(next, &p.Changes[i]); err != nil {
			return kernel.Size{}, err
		}
	}
	if k.seen != nil {
		k.seen(&k.ruleset, next)
	}
	k.ruleset = *next
	k.generation++
	k.commits++
	return kernel.Size{}, err
}

func (k *fake) Bindings(f model.Family, limit int) ([]*nft.Set, error) {
	if k.forgetful != nil {
		return nil, k.forgetful
	}
	var out []*nft.Set
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

func (k *fake) Unbind(f model.Family, s *nft.Set) error {
	if t := k.ruleset.Table(f); t != nil && t.Set(s.Name) != nil {
		there := t.Set(s.Name)
		there.Elements = slices.DeleteFunc(there.Elements, func(e nft.Element) bool { return slices.Contains(s.Elements, e) })
	}
	return nil
}
