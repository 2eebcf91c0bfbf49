package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Kernel is the part of [kernel.Conn] that an [Applier] uses.
type Kernel interface {
	// ReadExpecting returns our tables and their generation. It is faster if they are
	// as expected.
	ReadExpecting(*nft.Ruleset) (*nft.Ruleset, uint32, error)
	// Empty reports whether the kernel has none of our tables.
	Empty() (bool, error)
	// Claim takes over our tables, and returns the families whose tables are outdated by that.
	Claim() (outdated []model.Family, err error)
	// Generation returns the number of the last transaction of any program.
	Generation() (uint32, error)
	// Commit carries out a plan in one transaction, or nothing of it. Unless the
	// generation is [kernel.AnyGeneration] it fails if that is no longer current.
	// [kernel.OutcomeOf] classifies the error.
	Commit(p kernel.Prepared, generation uint32) (codec.Size, error)
	// Check returns why the kernel refuses the rules that a plan makes from nothing; nil:
	// it takes them. It carries out nothing, and our tables make no difference to it.
	Check(p *plan.Plan) error
	// Bindings returns the affinity maps of a family, each with at most limit bindings
	// of clients.
	Bindings(f model.Family, limit int) ([]*nft.Set, error)
	// Unbind deletes bindings from a map, except of clients that are bound to another
	// endpoint by now. Missing ones are no error.
	Unbind(f model.Family, s *nft.Set) error
}

// Applier carries out changes of rules. It is not safe for concurrent use.
type Applier struct {
	Observer Observer
	// Owns takes over the tables before a comparison: see [kernel.Conn.Claim].
	Owns bool
	// Shared means that other programs can change our tables.
	Shared bool

	kernel Kernel
	log    *slog.Logger
	slots  slots
	known  bool // the kernel holds what was applied, with endpoints in these slots
	// remains means that it may hold chains and sets beside that: see Postponed.
	remains bool
	// failed has the committed parts of changes that failed since.
	failed *plan.Plan

	departed departed // since the last sweep
	sweep    *Sweep   // the last one
}

// Observer follows the work of an [Applier].
type Observer interface {
	// Committing is called before every transaction, and the function that it returns after it, with
	// the error.
	Committing(*plan.Plan) func(error)
	// Committed is called after every transaction.
	Committed(Commit)
	// Postponed is called with the families in which chains or sets remain for a later change because
	// the kernel still refers to them.
	Postponed([]model.Family)
	// Compared gets the contents of the kernel and those that are wanted, in the slots that endpoints
	// keep, when a complete change or [Applier.Plan] has compared them first. It must not change them.
	Compared(current, wanted *nft.Ruleset)
}

// Unobserved is an [Observer] that does nothing, to be embedded by others.
type Unobserved struct{}

func (Unobserved) Committing(*plan.Plan) func(error) { return func(error) {} }
func (Unobserved) Committed(Commit)                  {}
func (Unobserved) Postponed([]model.Family)          {}
func (Unobserved) Compared(_, _ *nft.Ruleset)        {}

// Comparison is an [Observer] that keeps what was compared last.
type Comparison struct {
	Unobserved
	Current, Wanted *nft.Ruleset
}

// Compared implements [Observer].
func (c *Comparison) Compared(current, wanted *nft.Ruleset) { c.Current, c.Wanted = current, wanted }

// Commit is one transaction as it was sent to the kernel.
type Commit struct {
	Plan     *plan.Plan
	Size     codec.Size
	Duration time.Duration // of encoding, and up to the kernel's answer
	Err      error         // a lost answer leaves open whether the transaction was committed
}

func New(k Kernel, log *slog.Logger) *Applier {
	return &Applier{Observer: Unobserved{}, kernel: k, log: log, departed: make(departed), failed: &plan.Plan{}}
}

// Plan returns the plan of a complete change, and the generation of the comparison. It leaves
// out unused lanes: the daemon keeps them for the next Service, and removes them once an
// hour.
func (a *Applier) Plan(desired *nft.Ruleset) (*plan.Plan, uint32, error) {
	current, generation, err := a.kernel.ReadExpecting(desired)
	if err != nil {
		return nil, 0, err
	}
	wanted := plan.Settle(current, desired)
	a.Observer.Compared(current, wanted)
	return plan.Diff(current, wanted).WithoutIdleLanes(), generation, nil
}

// Held returns the tables in the kernel, with the elements that they had before changes that failed.
func (a *Applier) Held() (*nft.Ruleset, error) {
	held, _, err := a.kernel.ReadExpecting(&nft.Ruleset{})
	if err == nil {
		a.failed.Revert(held)
	}
	return held, err
}

// Known reports whether the kernel holds what was applied last, according to its
// answers. If not, the next change must be complete.
func (a *Applier) Known() bool { return a.known }

// Forget makes the next change start from the contents of the kernel: it must be
// complete.
func (a *Applier) Forget() { a.known = false }

var errUnknown = errors.New("the contents of the kernel are unknown")

// Check returns why the kernel refuses rules, regardless of its content; nil: it takes
// them. It changes nothing.
func (a *Applier) Check(r *nft.Ruleset) error { return a.kernel.Check(plan.Diff(&nft.Ruleset{}, r)) }

// attempts is how often a commit is tried while other programs change the ruleset.
const attempts = 20

// Apply carries out a change and returns the committed part. If nothing differs, it
// sends nothing to the kernel. A complete change is compared with the contents of the
// kernel; any other one starts from what was applied before. Apply takes ownership of
// the rulesets of the change.
//
// The outcome of a transaction has the same effect for all changes:
//
//	done     the next transaction
//	refused  an error; the contents of the kernel are no longer known
//	busy     chains and sets are deleted later, or in the end remain
//	later    another attempt; between two transactions an error, if the tables are [Applier.Shared]
//	short    an error
//	lost     another attempt: what was committed is refused now, or changes nothing
func (a *Applier) Apply(d nft.Delta) (*plan.Plan, error) {
	if !d.Complete && !a.known {
		return nil, errUnknown
	}
	u := &execution{Applier: a, delta: d, generation: kernel.AnyGeneration, done: &plan.Plan{}}
	a.known = false
	p, err := u.run()
	if err != nil {
		a.failed = plan.Merge(a.failed, u.done)
	}
	return p, err
}

func (u *execution) run() (*plan.Plan, error) {
	var err error
	for attempt := range attempts {
		time.Sleep(time.Duration(attempt) * time.Millisecond)
		var final bool
		if final, err = u.attemptChange(attempt); err == nil {
			u.recordContent()
			if attempt == 0 {
				return u.planned, nil // in the order of a dry run
			}
			return u.done, nil
		}
		outcome := kernel.OutcomeOf(err)
		if outcome == kernel.Short {
			u.known = u.isUntouched()
		}
		if final || outcome == kernel.Refused || outcome == kernel.Short {
			return nil, err
		}
		u.log.Debug("retrying apply", "attempt", attempt+1, "error", err)
	}
	more := slices.ContainsFunc(u.todo, func(p *plan.Plan) bool { return !p.WithoutRemovals().Empty() })
	switch outcome := kernel.OutcomeOf(err); {
	case outcome == kernel.Busy && !more:
		u.postponeRemovals(err)
		u.recordContent()
		return u.done, nil
	case outcome == kernel.Later:
		u.known = u.isUntouched()
	}
	return nil, fmt.Errorf("apply %d times: %w", attempts, err)
}

// execution carries out one change, in one or more attempts.
type execution struct {
	*Applier
	delta         nft.Delta
	before, after *nft.Ruleset
	moved         []placement // of exchanges, if not as rendered
	generation    uint32
	planned       *plan.Plan
	todo          []*plan.Plan // transactions
	done          *plan.Plan
	lost          *plan.Plan // may have been committed; nil: none
}

// attemptChange plans and carries out the rest of a change. After a final error there is no other
// attempt, regardless of the outcome.
func (u *execution) attemptChange(n int) (final bool, err error) {
	if u.delta.Complete {
		var outdated []model.Family
		if u.Owns {
			if outdated, err = u.kernel.Claim(); err != nil {
				return kernel.OutcomeOf(err) != kernel.Lost, err
			}
		}
		if err := u.compare(outdated, n); err != nil {
			return true, err
		}
	} else if n == 0 {
		if !u.slots.placeEndpoints(u.delta.Before) {
			return true, errUnknown
		}
		u.before, u.after = u.delta.Before, plan.Settle(u.delta.Before, u.delta.After)
		if !u.addExchanges() {
			return true, errUnknown
		}
		u.planned = plan.Diff(u.before, u.after)
		u.todo = u.planned.Phases()
	}
	if err := u.guardTransactions(); err != nil {
		return false, err
	}
	for len(u.todo) > 0 {
		if err := u.commitNext(); err != nil {
			return u.isOvertaken(err), err
		}
	}
	return false, nil
}

// guardTransactions makes the transactions of a change that is not complete depend on each other: in
// tables that others can change, another nftproxy may remove additions of the first one
// before the second one refers to them, and the kernel would not refuse that.
func (u *execution) guardTransactions() (err error) {
	if u.delta.Complete || !u.Shared || len(u.todo) < 2 || !u.done.Empty() || u.lost != nil {
		return nil
	}
	u.generation, err = u.kernel.Generation()
	return err
}

// isOvertaken reports whether only a comparison can go on with a change, because another
// program has committed a transaction since the first one of it.
func (u *execution) isOvertaken(err error) bool {
	return kernel.OutcomeOf(err) == kernel.Later && !u.delta.Complete && u.generation != kernel.AnyGeneration &&
		(!u.done.Empty() || u.lost != nil)
}

func (u *execution) compare(outdated []model.Family, attempt int) (err error) {
	if u.before, u.generation, err = u.kernel.ReadExpecting(u.delta.After); err != nil {
		return err
	}
	if attempt >= attempts/2 {
		// Other programs are always faster. The kernel checks the changes of our tables
		// in any case.
		u.generation = kernel.AnyGeneration
	}
	u.after = plan.Settle(u.before, u.delta.After)
	if attempt == 0 {
		u.Observer.Compared(u.before, u.after)
	}
	u.planned = plan.DiffOutdated(u.before, u.after, outdated)
	u.keepBindings(u.planned, u.after)
	if u.lost != nil && !u.planned.Has(u.lost.Changes[0]) {
		u.done = plan.Merge(u.done, u.lost) // it was committed
	}
	u.lost, u.todo = nil, u.planned.Phases()
	return nil
}

// commitNext commits the next transaction. If the kernel reports chains or sets as
// busy, it commits everything except their removal: before kernel 6.2 a chain stays in
// use for a moment after its last element.
func (u *execution) commitNext() error {
	p := u.todo[0]
	err := u.commitPlan(p)
	if err == nil {
		u.done, u.todo = plan.Merge(u.done, p), u.todo[1:]
	}
	if kernel.OutcomeOf(err) != kernel.Busy || !p.Removes() {
		return err
	}
	if rest := p.WithoutRemovals(); !rest.Empty() {
		if err := u.commitPlan(rest); err != nil {
			return err
		}
		u.done, u.todo[0] = plan.Merge(u.done, rest), p.Removals()
	}
	return err
}

func (u *execution) commitPlan(p *plan.Plan) error { return u.commitPrepared(kernel.Prepared{Plan: p}) }

func (u *execution) commitPrepared(prepared kernel.Prepared) error {
	p := prepared.Plan
	committed := u.Observer.Committing(p)
	start := time.Now()
	size, err := u.kernel.Commit(prepared, u.generation)
	took := time.Since(start)
	committed(err)
	u.Observer.Committed(Commit{Plan: p, Size: size, Duration: took, Err: err})
	outcome := kernel.OutcomeOf(err)
	if outcome == kernel.Done || outcome == kernel.Lost {
		u.departed.recordPlan(p)
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
	if u.generation != kernel.AnyGeneration {
		u.generation++ // by this transaction
	}
	if u.log.Enabled(context.Background(), slog.LevelDebug) { // the values take allocations
		u.log.Debug("transaction committed", "changes", len(p.Changes), "messages", size.Messages,
			"bytes", size.Bytes, "duration", took)
	}
	return nil
}

func (u *execution) isUntouched() bool {
	return !u.delta.Complete && u.done.Empty() && u.lost == nil
}

func (u *execution) postponeRemovals(err error) {
	u.remains = true
	u.log.Info("unused chains remain until the next change: the kernel still refers to them", "error", err)
	var families []model.Family
	for _, p := range u.todo {
		for _, c := range p.Removals().Changes {
			families = append(families, c.Family)
		}
	}
	slices.Sort(families)
	u.Observer.Postponed(slices.Compact(families))
}

func (u *execution) recordContent() {
	if u.delta.Complete {
		u.slots, u.before = make(slots), &nft.Ruleset{}
		u.remains = len(u.todo) > 0
	}
	u.slots.recordChange(u.before, u.delta.After, u.after)
	for _, m := range u.moved { // after what became of their frontends otherwise
		u.slots[m.Frontend] = m.Order
	}
	u.known, u.failed = true, &plan.Plan{}
}
