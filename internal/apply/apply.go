package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"golang.org/x/sys/unix"
)

// Applier brings the kernel to a wanted ruleset.
type Applier struct {
	// Observe, if set, is told of every transaction.
	Observe func(Commit)
	// Postponed, if set, is told of the families in which chains or sets are
	// left for a later change because the kernel still refers to them.
	Postponed func([]model.Family)
	// Claim, if set, makes the tables ours before they are compared: see
	// [kernel.Conn.Claim].
	Claim func() (outdated []model.Family, err error)

	kernel Kernel
	log    *slog.Logger
	known  placement // nil: not known

	departed departed // since the last sweep
	sweep    *Sweep   // the last one
}

// errUnknown means that it is not known what the kernel holds.
var errUnknown = errors.New("what was applied before is not known")

// Commit is one transaction as it was sent to the kernel.
type Commit struct {
	Plan     *plan.Plan
	Size     kernel.Size
	Duration time.Duration // with encoding, up to the kernel's answer
	// Err says what the kernel refused; it is nil after success. After some
	// errors it is open whether the transaction took place: the answer was lost.
	Err error
}

// New returns an applier.
func New(k Kernel, log *slog.Logger) *Applier {
	return &Applier{kernel: k, log: log, departed: make(departed)}
}

// Plan returns what Apply would do now, and the generation for which that
// holds, but for lanes to which nothing leads: the daemon keeps those for the next
// Service that needs them, and removes them once an hour.
func (a *Applier) Plan(desired *nft.Ruleset) (*plan.Plan, uint32, error) {
	current, generation, err := a.kernel.Read()
	if err != nil {
		return nil, 0, err
	}
	return plan.Diff(current, plan.Settle(current, desired)).WithoutIdleLanes(), generation, nil
}

// attempts is how often a commit is tried while others change the ruleset.
const attempts = 20

// Apply commits what is missing and returns it. When the ruleset is as desired
// already, nothing is sent to the kernel. After an error that leaves it open
// whether the transaction took place, the kernel is read again.
func (a *Applier) Apply(desired *nft.Ruleset) (*plan.Plan, error) {
	a.known = nil
	p, settled, err := a.apply(desired)
	if err == nil {
		a.known = make(placement)
		a.known.remember(settled)
	}
	return p, err
}

// apply returns the ruleset that the kernel has now as well.
func (a *Applier) apply(desired *nft.Ruleset) (*plan.Plan, *nft.Ruleset, error) {
	done, open := &plan.Plan{}, &plan.Plan{}
	var wanted *plan.Plan
	var settled *nft.Ruleset
	var last error
	for attempt := range attempts {
		time.Sleep(time.Duration(attempt) * time.Millisecond)
		outdated, err := a.claim()
		if isOpen(err) {
			last = err
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		current, generation, err := a.kernel.Read()
		if err != nil {
			return nil, nil, err
		}
		if attempt >= attempts/2 {
			// Others are always faster. What a plan says about our tables the
			// kernel checks in any case.
			generation = kernel.AnyGeneration
		}
		settled = plan.Settle(current, desired)
		todo := plan.DiffOutdated(current, settled, outdated)
		a.keep(todo, settled)
		if !open.Empty() && !todo.Has(open.Changes[0]) {
			done = plan.Merge(done, open) // it took place
		}
		if todo.Empty() {
			return done, settled, nil
		}
		wanted = todo
		var committed *plan.Plan
		committed, open, last = a.try(todo, generation)
		if last == nil && done.Empty() {
			return todo, settled, nil // in the order in which people know it
		}
		done = plan.Merge(done, committed)
		switch {
		case last == nil:
			return done, settled, nil
		case isOpen(last):
		case !passes(last, todo):
			return nil, nil, last
		}
		a.log.Debug("apply is tried again", "attempt", attempt+1, "error", last)
	}
	if errors.Is(last, unix.EBUSY) && wanted.WithoutRemovals().Empty() {
		a.log.Info("unused chains are left for the next change: the kernel still refers to them", "error", last)
		if a.Postponed != nil {
			a.Postponed(wanted.RemovalFamilies())
		}
		return done, settled, nil
	}
	return nil, nil, fmt.Errorf("apply %d times: %w", attempts, last)
}

func (a *Applier) claim() ([]model.Family, error) {
	if a.Claim == nil {
		return nil, nil
	}
	return a.Claim()
}

// try commits the phases of a plan. It returns what was committed and, if the
// answer to the last transaction was lost, what may have been.
func (a *Applier) try(p *plan.Plan, generation uint32) (done, open *plan.Plan, err error) {
	done, open = &plan.Plan{}, &plan.Plan{}
	for _, phase := range p.Phases() {
		committed, err := a.tryPhase(phase, generation)
		done = plan.Merge(done, committed)
		if isOpen(err) {
			open = phase
		}
		if err != nil {
			return done, open, err
		}
		if generation != kernel.AnyGeneration {
			generation++ // by this transaction
		}
	}
	return done, open, nil
}

// tryPhase commits a plan, or all of it but the removal of chains and sets that
// the kernel says are busy: before kernel 6.2 a chain stays in use for a moment
// after the last element that went to it. It returns what was committed.
func (a *Applier) tryPhase(p *plan.Plan, generation uint32) (*plan.Plan, error) {
	err := a.commit(p, generation)
	if err == nil {
		return p, nil
	}
	rest := p.WithoutRemovals()
	if !errors.Is(err, unix.EBUSY) || !p.Removes() {
		return &plan.Plan{}, err
	}
	if rest.Empty() {
		return rest, err
	}
	if err := a.commit(rest, generation); err != nil {
		return &plan.Plan{}, err
	}
	return rest, err
}

// isOpen tells whether an error leaves it open if the transaction took place:
// the answer was lost.
func isOpen(err error) bool {
	return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) || errors.Is(err, kernel.ErrNoAnswer)
}

// passes reports whether an error can be gone when the plan is made again: another
// process was faster, the kernel was not ready, or a chain was busy.
func passes(err error, p *plan.Plan) bool {
	return errors.Is(err, unix.ERESTART) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) && p.Removes()
}

func (a *Applier) commit(p *plan.Plan, generation uint32) error {
	start := time.Now()
	size, err := a.kernel.Commit(p, generation)
	took := time.Since(start)
	if a.Observe != nil {
		a.Observe(Commit{Plan: p, Size: size, Duration: took, Err: err})
	}
	if err == nil || isOpen(err) {
		a.departed.note(p)
		if a.sweep != nil {
			a.sweep.departed.comeBack(p)
		}
	}
	if err != nil {
		return err
	}
	a.log.Debug("transaction committed", "changes", len(p.Changes), "messages", size.Messages,
		"bytes", size.Bytes, "duration", took)
	return nil
}

// Kernel is the part of nf_tables that an [Applier] needs.
type Kernel interface {
	// Read returns our tables and the generation of the ruleset at which they
	// were read.
	Read() (*nft.Ruleset, uint32, error)
	// Commit carries out a plan as one transaction, unless the generation is no
	// longer the one given: then the error is ERESTART. After most errors
	// nothing is changed; ENOBUFS leaves that open.
	Commit(p *plan.Plan, generation uint32) (kernel.Size, error)
	// Bindings returns the affinity maps of a family, with at most limit elements
	// of each; none where there is no such map. It may be called while another
	// method runs.
	Bindings(f model.Family, limit int) ([]*nft.Set, error)
	// Unbind removes elements from an affinity map. Those that are gone already
	// are no error.
	Unbind(model.Family, *nft.Set) error
}
