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
	Source Source
	Node   model.Config
	// Interfaces has the addresses of the node's interfaces, on which NodePorts
	// depend unless they are served on "primary". It requests syncs.
	Interfaces *host.Interfaces
	Applier    *apply.Applier
	// Resume, if set, identifies what the kernel holds at the start, and nothing but
	// Applier can change.
	Resume   *Record
	Affinity Affinity
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
	Syncing  sync.Locker
	Watchdog Watchdog // nil: none
	Log      *slog.Logger
}

// Source has the objects.
type Source interface {
	// Await blocks until Load may be called.
	Await(context.Context) error
	// Load returns the changes since the last call. After an error the rules stay unchanged until the source
	// changes again, except for the changes of an update beside the error.
	Load() (*model.Update, error)
}

// Affinity knows how full the affinity maps are. Calls run concurrently with the Applier.
type Affinity interface {
	AffinityUse() ([]kernel.AffinityUse, error)
}

// Watchdog gets a sign of life every period from the loop itself, and during a long load: without it the loop hangs.
type Watchdog interface {
	Beat()                     // must not block
	BeatPeriod() time.Duration // zero: none is due
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

// Agent keeps the kernel in sync with a source.
type Agent struct {
	Config
	lockedRouter
	requests
	log        syncLog
	drift      drift
	affinity   affinity
	pending    pending
	quarantine quarantine
	kept       kept // its parts are guarded by routing

	// own are the Services, present or past, of a source that has a part that was never
	// read. The kernel may have others, of the missing part. Nil: all of it was read.
	own   map[model.ServiceName]bool
	nodes []*model.Node // of the last update
	cidrs []netip.Prefix
	// rules is the state after the last change; nil: until [Agent.completeState]. It is meaningless
	// while Applier does not know the content of the kernel.
	rules    *render.State
	sized    sizesAt   // that observers have seen
	compared time.Time // last successful comparison with the kernel
}

// pending is what the kernel does not have yet.
type pending struct {
	update *model.Update       // not yet given to the router; nil: none
	routes []model.RouteChange // since the last successful sync
}

func (p *pending) add(changes []model.RouteChange) {
	p.routes = model.JoinChanges(p.routes, changes)
}

// New returns an agent, for which the first sync is already requested.
func New(c Config) *Agent {
	if c.SyncPeriod == 0 {
		c.SyncPeriod = DefaultSyncPeriod
	}
	now := time.Now()
	a := &Agent{
		Config:       c,
		lockedRouter: lockedRouter{router: model.NewRouter()},
		requests:     requests{asked: make(chan struct{}, 1), state: State{Started: now, LastRequest: now, Pending: now}},
		log:          syncLog{objects: loglimit.New(c.Log)},
		drift:        drift{noticed: make(chan struct{}, 1)},
	}
	a.log.agent = &a.Config
	a.affinity = affinity{agent: &a.Config, crowded: make(map[string]bool), read: make(chan *readSweep, 1)}
	a.quarantine = quarantine{lockedRouter: &a.lockedRouter, agent: &a.Config, pending: &a.pending,
		services: make(map[model.ServiceName]*quarantined), again: make(map[model.ServiceName]bool)}
	if a.Interfaces != nil {
		a.Interfaces.SetFollower(a)
	}
	return a
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
	s.NewNotices = a.log.logNotices(s, [3]uint64{a.router.NoticesVersion(), a.quarantine.version, a.kept.version})
	a.log.logSync(s, a.State().LastSync.IsZero())
	a.endSync(s.Err)
	if s.Err != nil {
		a.drift.add(append(s.Interventions, a.drift.takeWaiting()...)...) // the repair has failed
	} else {
		a.pending.routes = nil
		a.drift.noteRepair(s)
		a.updateSizes(s)
		a.noteSuccess()
	}
	a.affinity.startSweep()
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
	u := a.pending.update
	if u != nil {
		s.Triggers = u.Triggers
		a.nodes, a.cidrs = u.Nodes, u.ServiceCIDRs
		a.noteOwnServices(u)
	}
	c := a.Node
	if a.Interfaces != nil {
		all := c.AnswerPing || c.Masquerades() || a.router.HasRanges() || u.HasRanges()
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
		a.pending.update = nil
	}
	a.addPending(s, changes)
	return base
}

func (a *Agent) addPending(s *Sync, changes []model.RouteChange) {
	a.pending.add(a.quarantine.filterChanges(changes))
	s.Routes = a.pending.routes
}
