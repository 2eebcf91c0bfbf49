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
	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Config has the parts and settings of an agent.
type Config struct {
	// Await blocks until Load may be called. Nil means immediately.
	Await func(context.Context) error
	// Load returns the changes of the source since the last call. After an error
	// the rules stay unchanged until the source changes again, except for the changes
	// of an update beside the error.
	Load func() (*model.Update, error)
	Node model.Config
	// Interfaces has the addresses of the node's interfaces, on which NodePorts
	// depend unless they are served on "primary". It requests syncs.
	Interfaces *host.Interfaces
	Applier    *apply.Applier
	// Resume, if set, identifies what the kernel holds at the start, and nothing but
	// Applier can change.
	Resume *Record
	// AffinityUse returns how full the affinity maps are. Calls run concurrently
	// with Applier.
	AffinityUse func() ([]kernel.AffinityUse, error)
	// MinSyncPeriod is the minimum time from the end of a sync to the next one for
	// a change; changes in that time are applied together (13.5).
	MinSyncPeriod time.Duration
	// SyncPeriod is the longest pause before a failed sync is retried (13.10);
	// zero means [DefaultSyncPeriod].
	SyncPeriod time.Duration
	// Observers are called in order after every sync. They are set before Run.
	Observers []func(*Sync)
	// Syncing, if set, is held from before the rules change until the observers
	// have returned.
	Syncing sync.Locker
	// Beat, if set, is called every BeatPeriod by the loop itself, and during a long
	// load: without calls the loop hangs. It must not block.
	Beat       func()
	BeatPeriod time.Duration
	Log        *slog.Logger
}

// DefaultSyncPeriod is the SyncPeriod of kube-proxy.
const DefaultSyncPeriod = 30 * time.Second

// Cause is the reason for a sync.
type Cause uint8

const (
	Start  Cause = iota // the first sync
	Change              // of the source or of the node's addresses
	Retry               // after a failed sync
	Check               // after an hour without a comparison (13.10)
	Drift               // after a change of our tables by another program
)

func (c Cause) String() string { return [...]string{"start", "change", "retry", "check", "drift"}[c] }

// Sync is one attempt to bring the kernel in sync with the source. Its values are
// shared: observers must neither change nor keep them.
type Sync struct {
	Cause    Cause
	Router   *model.Router       // may be read until the observers have returned
	Routes   []model.RouteChange // since the last successful sync
	Compared bool                // the kernel's tables were read and compared
	Moved    bool                // the addresses of NodePorts with the unspecified address have changed
	// NewNotices reports that the notices may have changed. There can be as many as
	// Services, so observers read them only then.
	NewNotices    bool
	Sizes         []render.SetSize      // of the sets and maps, if NewSizes
	NewSizes      bool                  // after success, if sizes have changed
	Triggers      []model.Trigger       // the times of the changes that are new in this sync
	Interventions []kernel.Intervention // by other programs; success repairs them
	Plan          *plan.Plan            // what was committed; nil after an error
	Started       time.Time
	Duration      time.Duration
	Err           error

	// Quarantined are the Services that the kernel serves as before because it refuses
	// their rules, sorted.
	Quarantined []model.ServiceName

	services *changedServices // nil: not asked for yet
	asBefore []model.Notice   // about quarantined and kept Services
}

// State is the progress of an agent.
type State struct {
	Started     time.Time // when New was called
	LastSync    time.Time // end of the last successful sync
	LastRequest time.Time // for a sync
	// Pending is the oldest request that no successful sync has served (10.6);
	// zero: there is none.
	Pending time.Time
}

// Agent keeps the kernel in sync with a source.
type Agent struct {
	Config
	asked   chan struct{} // a sync is requested
	changed atomic.Bool   // Load has changes
	moved   atomic.Bool   // Interfaces has changes
	awaited atomic.Int32  // number of commands that wait for a change
	drift   drift
	notices []model.Notice // last reported
	// objectLog receives notices, which have no limit in number.
	objectLog *slog.Logger
	versions  [3]uint64          // of the router's notices, and of those about the quarantine and kept Services
	failed    bool               // the last sync
	owner     *kernel.OwnedError // why the last sync failed, if another process owns our tables
	affinity  affinity

	update *model.Update // not yet given to the router; nil: none
	// own are the Services, present or past, of a source that has a part that was never
	// read. The kernel may have others, of the missing part. Nil: all of it was read.
	own     map[model.ServiceName]bool
	nodes   []*model.Node // of the last update
	cidrs   []netip.Prefix
	pending []model.RouteChange // since the last successful sync
	// rules is the state after the last change; nil: until [Agent.completeState]. It is meaningless
	// while Applier does not know the content of the kernel.
	rules    *render.State
	sized    sizesAt   // that observers have seen
	compared time.Time // last successful comparison with the kernel

	quarantine quarantine
	kept       kept // its parts are guarded by routing

	routing sync.RWMutex // guards the router
	router  *model.Router

	mu     sync.Mutex
	state  State
	served time.Time // oldest request that the current sync serves
}

// New returns an agent, for which the first sync is already requested.
func New(c Config) *Agent {
	if c.SyncPeriod == 0 {
		c.SyncPeriod = DefaultSyncPeriod
	}
	now := time.Now()
	a := &Agent{
		Config:     c,
		asked:      make(chan struct{}, 1),
		drift:      drift{noticed: make(chan struct{}, 1)},
		affinity:   newAffinity(),
		objectLog:  loglimit.New(c.Log),
		quarantine: newQuarantine(),
		router:     model.NewRouter(),
		state:      State{Started: now, LastRequest: now, Pending: now},
	}
	if a.Interfaces != nil {
		a.Interfaces.OnChange(a.addressesChanged)
	}
	return a
}

// Changed notifies the agent that Load has changes. It does not block and is safe
// for concurrent use.
func (a *Agent) Changed() {
	a.changed.Store(true)
	a.requestSync()
}

// Hurry makes changes wait for no MinSyncPeriod until done is called: a command waits for
// one. It is safe for concurrent use.
func (a *Agent) Hurry() (done func()) {
	a.awaited.Add(1)
	return func() { a.awaited.Add(-1) }
}

// addressesChanged notifies the agent that Interfaces has changes.
func (a *Agent) addressesChanged() {
	a.moved.Store(true)
	a.requestSync()
}

func (a *Agent) requestSync() {
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

// State returns the agent's progress. It is safe for concurrent use.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state
	if !a.served.IsZero() {
		s.Pending = a.served
	}
	return s
}

// sync applies the pending update, if any, and calls the observers. It returns
// false if it must be retried.
func (a *Agent) sync(cause Cause) bool {
	if a.Syncing != nil {
		a.Syncing.Lock()
		defer a.Syncing.Unlock()
	}
	s := &Sync{Cause: cause, Router: a.router, Started: time.Now()}
	if s.Err = recoverPanic(func() error { return a.applyPending(s) }); errors.As(s.Err, new(*panicError)) {
		a.Applier.Forget() // a.rules may be at any state
	}
	s.Duration = time.Since(s.Started)
	s.Quarantined, s.asBefore = a.quarantine.names, slices.Concat(a.quarantine.notices, a.kept.notices)
	s.NewNotices = a.reportNotices(s)
	a.log(s)
	a.endSync(s.Err)
	if s.Err != nil {
		a.drift.returnWaiting(s.Interventions)
	} else {
		a.pending = nil
		a.drift.noteRepair(s)
		a.updateSizes(s)
		a.mu.Lock()
		a.state.LastSync = time.Now()
		a.mu.Unlock()
	}
	a.startSweep()
	for _, observe := range a.Observers {
		if err := recoverPanic(func() error { observe(s); return nil }); err != nil {
			a.Log.Error("an observer of syncs failed", "error", err)
		}
	}
	a.completeState(s)
	return s.Err == nil
}

// sizesAt identifies the sizes of the sets at a time.
type sizesAt struct {
	rules   *render.State
	resized uint64
}

// updateSizes sets the sizes if they have changed: a changed endpoint does not change them.
func (a *Agent) updateSizes(s *Sync) {
	if a.rules == nil { // a record has them
		return
	}
	at := sizesAt{a.rules, a.rules.Resized()}
	if s.NewSizes = at != a.sized; s.NewSizes {
		a.sized, s.Sizes = at, a.rules.Sizes()
	}
}

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("internal error, please report it: %v\n%s", e.value, e.stack)
}

// recoverPanic runs f and turns a panic into an error: one unexpected object must not
// affect the others (13.20).
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

// updateRouter updates the router from the source and the interfaces, except for Services that
// [Agent.fillRouter] is to take. It reports whether rules that all routes share change.
func (a *Agent) updateRouter(s *Sync) (base bool) {
	u := a.update
	if u != nil {
		s.Triggers = u.Triggers
		a.nodes, a.cidrs = u.Nodes, u.ServiceCIDRs
		a.noteOwnServices(u)
	}
	c := a.Node
	if a.Interfaces != nil {
		all := c.AnswerPing || c.Masquerades() || a.router.HasRanges() || u != nil && hasRanges(u.Services)
		linked := len(c.LoadBalancerCIDRs) > 0
		if all || linked {
			a.Interfaces.WatchAll()
		}
		if linked {
			c.Links = a.Interfaces.Networks()
		}
		if all || len(c.NodePortAddresses) > 0 {
			c.InterfaceAddresses = a.Interfaces.Addresses()
		}
	}
	fills := a.canFill(s)
	a.routing.Lock()
	defer a.routing.Unlock()
	before := a.router.NodePortAddresses()
	changes, base := a.router.Configure(c, a.nodes, a.cidrs)
	s.Moved = !slices.Equal(before, a.router.NodePortAddresses())
	if u != nil && !fills {
		if r := a.Resume; r != nil && len(r.Objects) > 0 {
			a.router.DigestSoon(r.Key)
		}
		changes = model.JoinChanges(changes, a.router.SetServices(u.Services))
		a.update = nil
	}
	a.addPending(s, changes)
	return base
}

// addPending adds changes of routes to those that the kernel does not have yet.
func (a *Agent) addPending(s *Sync, changes []model.RouteChange) {
	a.pending = model.JoinChanges(a.pending, a.quarantine.filterChanges(changes))
	s.Routes = a.pending
}

// hasRanges reports whether a Service asks for ranges of ports.
func hasRanges(states map[model.ServiceName]model.ServiceState) bool {
	for _, s := range states {
		if s.Service != nil && len(s.Service.Extra().Ranges) > 0 {
			return true
		}
	}
	return false
}

func (a *Agent) log(s *Sync) {
	switch {
	case s.Err != nil:
		a.logError(s.Err)
	case len(s.Interventions) > 0:
		a.logInterventions(s)
	case s.Cause == Check && !s.Plan.Empty():
		a.Log.Warn("rules were changed by other programs and are repaired", "added", s.Plan.Count(plan.Add),
			"changed", s.Plan.Count(plan.Replace), "deleted", s.Plan.Count(plan.Delete))
	case !s.Plan.Empty() || a.failed:
		a.logApplied(s)
	}
	a.failed = s.Err != nil
	if !a.failed {
		a.owner = nil
	}
}

// reportNotices logs new notices, and reports whether the notices have changed.
func (a *Agent) reportNotices(s *Sync) bool {
	versions := [3]uint64{a.router.NoticesVersion(), a.quarantine.version, a.kept.version}
	if versions == a.versions {
		return false
	}
	notices := s.Notices()
	known := make(map[model.Notice]bool, len(a.notices))
	for _, n := range a.notices {
		known[n] = true
	}
	for _, n := range notices {
		if !known[n] {
			a.objectLog.Warn(n.Message, "object", n.Object)
		}
	}
	a.notices, a.versions = notices, versions
	return true
}
