package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Kernel is what an [Applier] needs of [kernel.Conn].
type Kernel interface {
	// Read returns our tables, and the generation of the ruleset that they are of.
	Read() (*nft.Ruleset, uint32, error)
	// Commit carries a plan out in one transaction, or nothing of it. With another
	// generation than [kernel.AnyGeneration] it fails if that is no longer the
	// present one. [kernel.OutcomeOf] says what an error means.
	Commit(p *plan.Plan, generation uint32) (kernel.Size, error)
	// Bindings returns the affinity maps of a family, each with some bindings of
	// clients, up to a limit.
	Bindings(f model.Family, limit int) ([]*nft.Set, error)
	// Unbind deletes bindings from a map. Those that are gone are no error.
	Unbind(f model.Family, s *nft.Set) error
}

// Applier carries out changes of rules. It is not safe for concurrent use.
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
	slots  slots
	known  bool // the kernel holds what was applied, and slots says where

	departed departed // since the last sweep
	sweep    *Sweep   // the last one
}

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

// Plan returns what a complete change would do now, but for lanes to which
// nothing leads: the daemon keeps those for the next Service that needs them, and
// removes them once an hour. It returns the generation for which that holds, too.
func (a *Applier) Plan(desired *nft.Ruleset) (*plan.Plan, uint32, error) {
	current, generation, err := a.kernel.Read()
	if err != nil {
		return nil, 0, err
	}
	return plan.Diff(current, plan.Settle(current, desired)).WithoutIdleLanes(), generation, nil
}

// Known reports whether the kernel holds what was applied last, as far as its
// answers tell. If not, the next change has to be a complete one.
func (a *Applier) Known() bool { return a.known }

// Forget has the next change start from what the kernel holds: it has to be a
// complete one.
func (a *Applier) Forget() { a.known = false }

var errUnknown = errors.New("what the kernel holds is not known")

// attempts is how often a commit is tried while others change the ruleset.
const attempts = 20

// Apply carries out a change, and returns what it committed. If nothing differs,
// nothing is sent to the kernel. A complete change is compared with what the
// kernel holds; any other one starts from what was applied before. It takes the
// rulesets of the change over.
//
// What an outcome of a transaction leads to is the same for all changes:
//
//	done     the next transaction
//	refused  an error; what the kernel holds is no longer known
//	busy     chains and sets are deleted later, or are left in the end
//	later    another attempt
//	short    an error
//	lost     another attempt: what took place already is refused, or does nothing
func (a *Applier) Apply(d nft.Delta) (*plan.Plan, error) {
	if !d.Complete && !a.known {
		return nil, errUnknown
	}
	a.known = false
	u := &update{Applier: a, delta: d, generation: kernel.AnyGeneration, done: &plan.Plan{}}
	var err error
	for attempt := range attempts {
		time.Sleep(time.Duration(attempt) * time.Millisecond)
		var final bool
		if final, err = u.attempt(attempt); err == nil {
			u.end()
			if attempt == 0 {
				return u.planned, nil // in the order of a dry run
			}
			return u.done, nil
		}
		outcome := kernel.OutcomeOf(err)
		if outcome == kernel.Short {
			a.known = u.isUntouched()
		}
		if final || outcome == kernel.Refused || outcome == kernel.Short {
			return nil, err
		}
		a.log.Debug("apply is tried again", "attempt", attempt+1, "error", err)
	}
	switch outcome := kernel.OutcomeOf(err); {
	case outcome == kernel.Busy && u.removesOnly():
		u.postpone(err)
		u.end()
		return u.done, nil
	case outcome == kernel.Later:
		a.known = u.isUntouched()
	}
	return nil, fmt.Errorf("apply %d times: %w", attempts, err)
}

// update is a change under way.
type update struct {
	*Applier
	delta         nft.Delta
	before, after *nft.Ruleset
	generation    uint32
	planned       *plan.Plan
	todo          []*plan.Plan // transactions of it
	done          *plan.Plan
	lost          *plan.Plan // may have been committed; nil: none
}

// attempt plans what is left to do, and does it. An error is final if there is no
// point in another attempt, whatever its outcome.
func (u *update) attempt(n int) (final bool, err error) {
	if u.delta.Complete {
		outdated, err := u.claim()
		if err != nil {
			return kernel.OutcomeOf(err) != kernel.Lost, err
		}
		if err := u.compare(outdated, n); err != nil {
			return true, err
		}
	} else if n == 0 {
		if !u.slots.place(u.delta.Before) {
			return true, errUnknown
		}
		u.before, u.after = u.delta.Before, plan.Settle(u.delta.Before, u.delta.After)
		u.planned = plan.Diff(u.before, u.after)
		u.todo = u.planned.Phases()
	}
	for len(u.todo) > 0 {
		if err := u.commitNext(); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (u *update) claim() ([]model.Family, error) {
	if u.Claim == nil {
		return nil, nil
	}
	return u.Claim()
}

// compare plans what is missing in the kernel.
func (u *update) compare(outdated []model.Family, attempt int) (err error) {
	if u.before, u.generation, err = u.kernel.Read(); err != nil {
		return err
	}
	if attempt >= attempts/2 {
		// Others are always faster. What a plan says about our tables the
		// kernel checks in any case.
		u.generation = kernel.AnyGeneration
	}
	u.after = plan.Settle(u.before, u.delta.After)
	u.planned = plan.DiffOutdated(u.before, u.after, outdated)
	u.keep(u.planned, u.after)
	if u.lost != nil && !u.planned.Has(u.lost.Changes[0]) {
		u.done = plan.Merge(u.done, u.lost) // it took place
	}
	u.lost, u.todo = nil, u.planned.Phases()
	return nil
}

// commitNext commits the next transaction, or all of it but the removal of chains
// and sets that the kernel says are busy: before kernel 6.2 a chain stays in use
// for a moment after the last element that went to it.
func (u *update) commitNext() error {
	p := u.todo[0]
	err := u.commit(p)
	if rest := p.WithoutRemovals(); kernel.OutcomeOf(err) == kernel.Busy && p.Removes() && !rest.Empty() {
		if err := u.commit(rest); err != nil {
			return err
		}
		u.todo[0] = p.Removals()
		return err
	}
	if err == nil {
		u.todo = u.todo[1:]
	}
	return err
}

func (u *update) commit(p *plan.Plan) error {
	start := time.Now()
	size, err := u.kernel.Commit(p, u.generation)
	took := time.Since(start)
	if u.Observe != nil {
		u.Observe(Commit{Plan: p, Size: size, Duration: took, Err: err})
	}
	outcome := kernel.OutcomeOf(err)
	if outcome == kernel.Done || outcome == kernel.Lost {
		u.departed.note(p)
		if u.sweep != nil {
			u.sweep.departed.comeBack(p)
		}
	}
	if outcome == kernel.Lost {
		u.lost = p
	}
	if err != nil {
		return err
	}
	u.done = plan.Merge(u.done, p)
	if u.generation != kernel.AnyGeneration {
		u.generation++ // by this transaction
	}
	u.log.Debug("transaction committed", "changes", len(p.Changes), "messages", size.Messages,
		"bytes", size.Bytes, "duration", took)
	return nil
}

// isUntouched reports whether the kernel is where it was before the change.
func (u *update) isUntouched() bool {
	return !u.delta.Complete && u.done.Empty() && u.lost == nil
}

// removesOnly reports whether nothing is left to do but to remove chains and sets.
func (u *update) removesOnly() bool {
	return !slices.ContainsFunc(u.todo, func(p *plan.Plan) bool { return !p.WithoutRemovals().Empty() })
}

// postpone leaves what cannot be removed for a later comparison.
func (u *update) postpone(err error) {
	u.log.Info("unused chains are left for the next change: the kernel still refers to them", "error", err)
	if u.Postponed == nil {
		return
	}
	var families []model.Family
	for _, p := range u.todo {
		families = append(families, p.RemovalFamilies()...)
	}
	slices.Sort(families)
	u.Postponed(slices.Compact(families))
}

// end records what the kernel holds now.
func (u *update) end() {
	if u.delta.Complete {
		u.slots, u.before = make(slots), &nft.Ruleset{}
	}
	u.slots.follow(u.before, u.after)
	u.known = true
}
