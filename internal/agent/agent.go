// Package agent is the daemon: it keeps the kernel at what a source says.
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
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
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
	Interfaces *Interfaces
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
	// Whole tells that everything was compared with the kernel. Otherwise the
	// sync was about the frontends in Routes only.
	Whole  bool
	Routes []model.RouteChange
	// Moved says that NodePorts with the unspecified address are served on other
	// addresses than before.
	Moved bool
	// NewNotices tells that the router may have other notices than at the sync
	// before. There can be as many as Services: whoever looks at all of them at
	// every sync pays for what did not change.
	NewNotices bool
	// Rules are those that are wanted after a whole sync, else nil.
	Rules *nft.Ruleset
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

	update *model.Update // not yet taken in; nil: none
	nodes  []*model.Node // of the last update
	cidrs  []netip.Prefix
	// composer is nil if the next sync has to compare everything.
	composer *render.Composer
	compared time.Time // when a comparison of everything succeeded last

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
		a.Interfaces.changed = a.addressesChanged
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
	s.Err = contain(func() error { return a.attempt(s) })
	s.Duration = time.Since(s.Started)
	s.NewNotices = a.report()
	a.log(s)
	a.end(s.Err)
	if s.Err != nil {
		a.composer = nil
		a.drift.restore(s.Interventions)
	} else {
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

// contain runs f and turns a panic into an error: one object that nobody
// thought of must not take the others down (13.20).
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error, please report it: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

func (a *Agent) attempt(s *Sync) error {
	a.take(s)
	if a.composer == nil {
		return a.compare(s)
	}
	switch s.Cause {
	case Change:
		if a.patch(s) == nil {
			return nil
		}
	case Check, Drift:
		a.settle(s)
	}
	return a.compare(s)
}

// settle does our own work before a comparison that looks for foreign changes:
// it applies other addresses of the node, and removes idle lanes.
func (a *Agent) settle(s *Sync) {
	if len(s.Routes) > 0 || s.Moved {
		if a.patch(s) != nil {
			return
		}
		a.Log.Info("rules applied to other addresses of this node", "changes", len(s.Plan.Changes))
		s.Plan = nil
	}
	if _, err := a.Applier.Patch(a.composer.Idle()); err != nil {
		a.Log.Debug("lanes without frontends are left", "error", err)
	}
}

// errPatch means that a change needs more than the rules of some frontends.
var errPatch = errors.New("tables or sets come or go")

// compare brings the kernel to all that the router says.
func (a *Agent) compare(s *Sync) error {
	a.composer = nil
	s.Whole, s.Routes = true, nil
	s.Interventions = a.drift.take()
	routing := a.router.Routing()
	s.Rules = render.Render(routing)
	p, err := a.Applier.Apply(s.Rules)
	if err != nil {
		s.Plan = nil
		return err
	}
	s.Plan = s.Plan.Then(p)
	a.composer, a.compared = render.NewComposer(routing), time.Now()
	return nil
}

// patch carries out the changes of routes alone.
func (a *Agent) patch(s *Sync) error {
	before, after, ok := a.composer.Change(s.Routes, a.router.NodePortAddresses())
	if !ok {
		return errPatch
	}
	p, err := a.Applier.Patch(before, after)
	if err != nil {
		a.Log.Info("a change failed; everything is compared", "error", err)
		return err
	}
	s.Plan = p
	return nil
}

// take brings the router to what the source and the interfaces say.
func (a *Agent) take(s *Sync) {
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
	changes, all := a.router.Configure(c, a.nodes, a.cidrs)
	s.Moved = !slices.Equal(before, a.router.NodePortAddresses())
	if all {
		a.composer = nil
	}
	s.Routes = changes
	switch {
	case u == nil:
	case u.Whole:
		s.Routes = model.JoinChanges(changes, a.router.Replace(u.Services))
	default:
		s.Routes = model.JoinChanges(changes, a.router.SetServices(u.Services))
	}
	a.update = nil
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
