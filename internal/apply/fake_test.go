package apply

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// errAfter is an error of a commit that takes place all the same: what is lost is
// the answer.
type errAfter struct{ error }

func (e errAfter) Unwrap() error { return e.error }

// fake is a strict nf_tables in memory. It fails at times in the ways of the kernel.
type fake struct {
	ruleset    nft.Ruleset
	generation uint32
	commits    int
	// fails returns the fault of a commit, or nil. After an errAfter the commit is
	// carried out.
	fails func(*plan.Plan) error
	// unreadable, if set, returns why the rules cannot be read, or nil.
	unreadable func() error
	// forgetful, if set, is why the bindings of clients cannot be read.
	forgetful error
	// seen, if set, is called for each transaction.
	seen func(before, after *nft.Ruleset)
}

func newFake() *fake { return &fake{generation: 1, fails: func(*plan.Plan) error { return nil }} }

// flaky fails in a tenth of all calls, with these faults and transient ones.
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

func (k *fake) Claim() ([]model.Family, error) { return nil, nil }

func (k *fake) Generation() (uint32, error) { return k.generation, nil }

func (k *fake) ReadExpecting(*nft.Ruleset) (*nft.Ruleset, uint32, error) { return k.Read() }

func (k *fake) Empty() (bool, error) { return len(k.ruleset.Tables) == 0, nil }

func (k *fake) Commit(p kernel.Prepared, generation uint32) (codec.Size, error) {
	err := k.fails(p.Plan)
	if generation != kernel.AnyGeneration && generation != k.generation {
		err = unix.ERESTART
	}
	var after errAfter
	if err != nil && !errors.As(err, &after) {
		return codec.Size{}, fmt.Errorf("fake: %w", err)
	}
	next, refused := k.carryOut(p.Plan)
	if refused != nil {
		return codec.Size{}, refused
	}
	if k.seen != nil {
		k.seen(&k.ruleset, next)
	}
	k.ruleset = *next
	k.generation++
	k.commits++
	return codec.Size{}, err
}

// carryOut returns the rules after a plan.
func (k *fake) carryOut(p *plan.Plan) (*nft.Ruleset, error) {
	next := workload.Clone(&k.ruleset)
	for i := range p.Changes {
		c := &p.Changes[i]
		if err := workload.CarryOut(next, c); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (k *fake) Check(p *plan.Plan) error {
	_, err := (&fake{}).carryOut(p)
	return err
}

func (k *fake) Bindings(f model.Family, limit int) ([]*nft.Set, error) {
	if k.forgetful != nil {
		return nil, k.forgetful
	}
	var out []*nft.Set
	if t := k.ruleset.Table(f); t != nil {
		for _, s := range t.Sets {
			if s.Dynamic && len(s.Data) > 0 { // clients of a limit have no binding
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
