// Package agent is the loop that keeps the kernel in sync with a source.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Config is what an agent needs.
type Config struct {
	// Await returns when Load may be called for the first time, or an error
	// when that will never be. Nil: at once.
	Await func(context.Context) error
	// Load returns what is new in the source since the last call. After an
	// error the rules stay as they are until the next change of the source.
	Load func() (*model.Update, error)
	// Node is the configuration of the node.
	Node model.Config
	// Interfaces knows the addresses of the node's interfaces, on which NodePorts
	// depend unless they are served on "primary". It asks the agent for syncs.
	Interfaces *host.Interfaces
	// Applier commits.
	Applier *apply.Applier
	// AffinityUse returns how full the affinity maps are. It is called while
	// Applier is at work.
	AffinityUse func() ([]kernel.AffinityUse, error)
	// MinSyncPeriod passes at least between the end of one sync and the next
	// one that a change asks for; changes meanwhile travel together (13.5).
	MinSyncPeriod time.Duration
	// SyncPeriod is the longest wait before a failed sync is tried again
	// (13.10); zero means [DefaultSyncPeriod].
	SyncPeriod time.Duration
	// Observers are told of every sync, in this order, before anything else
	// happens.
	Observers []func(*Sync)
	// Syncing, if set, is held from before the rules change until the observers
	// know.
	Syncing sync.Locker
	// Log receives what happens; the steady state is quiet.
	Log *slog.Logger
}

// DefaultSyncPeriod is the SyncPeriod of kube-proxy.
const DefaultSyncPeriod = 30 * time.Second

// Cause is why a sync takes place.
type Cause uint8

const (
	// Start is the first sync.
	Start Cause = iota
	// Change follows a change of the source or of the node's addresses.
	Change
	// Retry follows a failed sync.
	Retry
	// Check follows an hour without a full comparison: what it finds to do was
	// done by others (13.10).
	Check
	// Drift follows what others did to our tables.
	Drift
)

func (c Cause) String() string { return [...]string{"start", "change", "retry", "check", "drift"}[c] }

// Sync is one attempt to bring the kernel to what the source says. Its values
// are shared: they must not be changed, and not be kept but for what says so.
type Sync struct {
	Cause Cause
	// Router knows what is wanted. It may be asked while observers are told.
	Router *model.Router
	// Routes are the changes since the last sync that succeeded.
	Routes []model.RouteChange
	// Compared means that what the kernel holds was read and compared.
	Compared bool
	// Moved says that NodePorts with the unspecified address are served on other
	// addresses than before.
	Moved bool
	// NewNotices tells that the router may have other notices than at the sync
	// before. There can be as many as Services: whoever looks at all of them at
	// every sync pays for what did not change.
	NewNotices bool
	// Sizes are the numbers of elements of the sets and maps, after success.
	Sizes []render.SetSize
	// Triggers are the moments of the changes that the sync is the first to
	// contain.
	Triggers []model.Trigger
	// Interventions are those of others that this sync repairs, if it succeeds.
	Interventions []kernel.Intervention
	Plan          *plan.Plan // what was committed; nil after an error
	Started       time.Time
	Duration      time.Duration
	// Err says why the kernel is not at the rules. It is nil after success.
	Err error
}

// State is how far an agent is.
type State struct {
	// Started is when the agent was made.
	Started time.Time
	// LastSync is the end of the last successful sync.
	LastSync time.Time
	// LastRequest is when a sync was asked for last.
	LastRequest time.Time
	// Pending is the oldest request that no successful sync has served (10.6);
	// the zero time means that there is none.
	Pending time.Time
}

// Agent applies a source for as long as it runs.
type Agent struct {
	Config
	asked    chan struct{} // for a sync
	changed  atomic.Bool   // Load returns something else
	moved    atomic.Bool   // so does Interfaces
	drift    drift
	notices  []model.Notice     // reported last
	version  uint64             // of notices
	failed   bool               // the last sync
	owner    *kernel.OwnedError // of our tables, who made the last sync fail; nil: nobody
	affinity affinity

	update  *model.Update // not yet taken in; nil: none
	nodes   []*model.Node // of the last update
	cidrs   []netip.Prefix
	pending []model.RouteChange // since the last sync that succeeded
	// rules is the state of what was applied last. It counts for nothing while
	// Applier does not know what the kernel holds.
	rules    *render.State
	compared time.Time // when a comparison with the kernel succeeded last

	routing sync.Mutex // guards the router
	router  *model.Router

	mu     sync.Mutex
	state  State
	served time.Time // oldest of the requests that the present sync serves
}

// New returns an agent. The first sync counts as asked for.
func New(c Config) *Agent {
	if c.SyncPeriod == 0 {
		c.SyncPeriod = DefaultSyncPeriod
	}
	now := time.Now()
	a := &Agent{
		Config:   c,
		asked:    make(chan struct{}, 1),
		drift:    drift{told: make(chan struct{}, 1)},
		affinity: newAffinity(),
		router:   model.NewRouter(),
		state:    State{Started: now, LastRequest: now, Pending: now},
	}
	if a.Interfaces != nil {
		a.Interfaces.OnChange(a.addressesChanged)
	}
	return a
}

// Changed tells the agent that Load returns something else now. It does not
// block, and is safe for concurrent use.
func (a *Agent) Changed() {
	a.changed.Store(true)
	a.ask()
}

// addressesChanged notifies the agent that Interfaces returns something else now.
func (a *Agent) addressesChanged() {
	a.moved.Store(true)
	a.ask()
}

func (a *Agent) ask() {
	a.mu.Lock()
	a.state.LastRequest = time.Now()
	if a.state.Pending.IsZero() {
		a.state.Pending = a.state.LastRequest
	}
	a.mu.Unlock()
	select {
	case a.asked <- struct{}{}:
	default: // one is waiting already
	}
}

// State returns how far the agent is. It is safe for concurrent use.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state
	if !a.served.IsZero() {
		s.Pending = a.served
	}
	return s
}

// sync takes the update in, if there is one, applies what follows from it, and
// tells the observers. It returns false if that is worth another attempt.
func (a *Agent) sync(cause Cause) bool {
	if a.Syncing != nil {
		a.Syncing.Lock()
		defer a.Syncing.Unlock()
	}
	s := &Sync{Cause: cause, Router: a.router, Started: time.Now()}
	if s.Err = contain(func() error { return a.attempt(s) }); errors.As(s.Err, new(*panicError)) {
		a.Applier.Forget() // a.rules may be at any state
	}
	s.Duration = time.Since(s.Started)
	s.NewNotices = a.report()
	a.log(s)
	a.end(s.Err)
	if s.Err != nil {
		a.drift.restore(s.Interventions)
	} else {
		a.pending = nil
		s.Sizes = a.rules.Sizes()
		a.mu.Lock()
		a.state.LastSync = time.Now()
		a.mu.Unlock()
	}
	a.sweep()
	for _, observe := range a.Observers {
		if err := contain(func() error { observe(s); return nil }); err != nil {
			a.Log.Error("work after a sync was cut short", "error", err)
		}
	}
	return s.Err == nil
}

// panicError is a panic in a sync.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("internal error, please report it: %v\n%s", e.value, e.stack)
}

// contain runs f and turns a panic into an error: one unexpected object must not
// take the others down (13.20).
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

// attempt applies the changes since the last success. A comparison follows where
// it is due, and where what the kernel holds is not known.
func (a *Agent) attempt(s *Sync) error {
	base := a.take(s)
	due := s.Cause == Check || s.Cause == Drift
	if a.Applier.Known() && !base {
		err := a.apply(s)
		if err == nil && !due {
			return nil
		}
		if err != nil && a.Applier.Known() { // the kernel is where it was
			return err
		}
		if err != nil {
			a.Log.Info("a change failed; everything is compared", "error", err)
		}
	}
	return a.compare(s)
}

// apply changes the rules from what was applied last. Before a comparison, what it
// would find is to be the work of others alone: idle lanes go as well.
func (a *Agent) apply(s *Sync) (err error) {
	due := s.Cause == Check || s.Cause == Drift
	if s.Plan, err = a.Applier.Apply(a.rules.Change(s.Routes, a.router.NodePortAddresses())); err != nil {
		a.rules.Undo()
		return err
	}
	if !due {
		return nil
	}
	if !s.Plan.Empty() {
		a.Log.Info("rules applied to other addresses of this node", "changes", len(s.Plan.Changes))
	}
	if _, err = a.Applier.Apply(a.rules.DropIdle()); err != nil {
		a.rules.Undo()
	}
	return err
}

// compare brings the kernel to all that the router says, from what it holds.
func (a *Agent) compare(s *Sync) (err error) {
	s.Compared = true
	s.Interventions = a.drift.take()
	rules, delta := render.Start(a.router.Routing())
	if s.Plan, err = a.Applier.Apply(delta); err != nil {
		return err
	}
	a.rules, a.compared = rules, time.Now()
	return nil
}

// take brings the router to what the source and the interfaces say. It reports
// whether more than the rules of routes changes.
func (a *Agent) take(s *Sync) (base bool) {
	u := a.update
	if u != nil {
		s.Triggers = u.Triggers
		a.nodes, a.cidrs = u.Nodes, u.ServiceCIDRs
	}
	c := a.Node
	if a.Interfaces != nil && len(c.NodePortAddresses) > 0 {
		c.InterfaceAddresses = a.Interfaces.Addresses()
	}
	a.routing.Lock()
	defer a.routing.Unlock()
	before := a.router.NodePortAddresses()
	changes, base := a.router.Configure(c, a.nodes, a.cidrs)
	s.Moved = !slices.Equal(before, a.router.NodePortAddresses())
	if u != nil {
		changes = model.JoinChanges(changes, a.router.SetServices(u.Services))
		a.update = nil
	}
	a.pending = model.JoinChanges(a.pending, changes)
	s.Routes = a.pending
	return base
}

// Routing returns what is wanted of this node at this moment. It is safe for
// concurrent use, and looks at everything.
func (a *Agent) Routing() *model.Routing {
	a.routing.Lock()
	defer a.routing.Unlock()
	return a.router.Routing()
}

func (a *Agent) log(s *Sync) {
	switch {
	case s.Err != nil:
		a.logError(s.Err)
	case len(s.Interventions) > 0:
		a.logInterventions(s)
	case s.Cause == Check && !s.Plan.Empty():
		a.Log.Warn("rules were changed by others and are repaired", "added", s.Plan.Count(plan.Add),
			"changed", s.Plan.Count(plan.Replace), "deleted", s.Plan.Count(plan.Delete))
	case !s.Plan.Empty() || a.failed:
		services, frontends := s.Router.Len()
		a.Log.Info("rules applied", "services", services, "frontends", frontends, "added", s.Plan.Count(plan.Add),
			"changed", s.Plan.Count(plan.Replace), "deleted", s.Plan.Count(plan.Delete),
			"duration", s.Duration.Round(time.Microsecond))
	}
	a.failed = s.Err != nil
	if !a.failed {
		a.owner = nil
	}
}

// report logs the notices that were not there the last time. It returns false
// if they are the same ones.
func (a *Agent) report() bool {
	notices, version := a.router.Notices(), a.router.NoticesVersion()
	if version == a.version {
		return false
	}
	known := make(map[model.Notice]bool, len(a.notices))
	for _, n := range a.notices {
		known[n] = true
	}
	for _, n := range notices {
		if !known[n] {
			a.Log.Warn(n.Message, "object", n.Object)
		}
	}
	a.notices, a.version = notices, version
	return true
}
