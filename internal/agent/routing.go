package agent

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// lockedRouter is the router with its lock. Its exported methods are part of [Agent], and safe for
// concurrent use.
type lockedRouter struct {
	routing sync.RWMutex
	router  *model.Router
}

func readRouter[T any](l *lockedRouter, get func(*model.Router) T) T {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return get(l.router)
}

// Routing returns the current routing of this node, with notices about Services that the
// kernel serves as before. Its cost grows with the number of routes.
func (a *Agent) Routing() *model.Routing {
	return readRouter(&a.lockedRouter, func(router *model.Router) *model.Routing {
		r := router.Routing()
		r.Notices = slices.Concat(r.Notices, a.quarantine.notices, a.kept.notices)
		return r
	})
}

// Routes calls yield with each route, in no order, until that returns false. yield must not call
// the agent.
func (l *lockedRouter) Routes(yield func(*model.Route) bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	l.router.Each(yield)
}

// ServiceCIDRs returns the ranges in which unused addresses are dropped.
func (l *lockedRouter) ServiceCIDRs() []netip.Prefix {
	return readRouter(l, (*model.Router).ServiceCIDRs)
}

// HasRanges reports whether a Service asks for ranges of ports.
func (l *lockedRouter) HasRanges() bool { return readRouter(l, (*model.Router).HasRanges) }

// View returns the state of a Service, or nil if there is none.
func (l *lockedRouter) View(name model.ServiceName) *model.View {
	return readRouter(l, func(r *model.Router) *model.View { return r.View(name) })
}

// Serves returns the Service that has a frontend, if it is known at present: not while
// routes change. It never waits.
func (l *lockedRouter) Serves(f model.Frontend) (model.ServiceName, bool) {
	if !l.routing.TryRLock() {
		return model.ServiceName{}, false
	}
	defer l.routing.RUnlock()
	route := l.router.Serves(f)
	if route == nil {
		return model.ServiceName{}, false
	}
	return route.Service.Name, true
}

// routeOf returns the route that serves an address and port: the one of that frontend, of a NodePort or
// of a range; nil: there is none.
func (l *lockedRouter) routeOf(f model.Frontend) *model.Route {
	return readRouter(l, func(r *model.Router) *model.Route { return r.Serves(f) })
}

// Owner returns the frontend of the route that serves an address and port.
func (l *lockedRouter) Owner(f model.Frontend) (owner model.Frontend, ok bool) {
	route := l.routeOf(f)
	if ok = route != nil; ok {
		owner = route.Frontend
	}
	return owner, ok
}

// PortOf returns its service port.
func (l *lockedRouter) PortOf(f model.Frontend) (port model.PortName, ok bool) {
	route := l.routeOf(f)
	if ok = route != nil; ok {
		port = route.PortName()
	}
	return port, ok
}

// Holder returns a Service that has an address; false: there is none. Its cost grows with the number
// of routes.
func (l *lockedRouter) Holder(address netip.Addr) (name model.ServiceName, ok bool) {
	for r := range l.Routes {
		if r.Frontend.Address == address {
			return r.Service.Name, true
		}
	}
	return name, false
}

// BehindLocalhost returns where the listener of a NodePort on localhost connects to; false:
// connections that it would make are not forwarded.
func (l *lockedRouter) BehindLocalhost(f model.Frontend) (netip.AddrPort, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	to, route := l.router.BehindLocalhost(f)
	if route == nil || route.Inside().Verdict != model.Forward {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(to.Address, to.Port), true
}

// IsBalance reports whether a Service comes from a Balance.
func (l *lockedRouter) IsBalance(name model.ServiceName) bool {
	return readRouter(l, func(r *model.Router) bool { return r.IsBalance(name) })
}

// Words are the words for all Services together; empty: there are none.
func (l *lockedRouter) Words() (in words.Vocabulary, empty bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	services, _ := l.router.Len()
	return l.router.Words(), services == 0
}

// Named returns the Services of a name in a namespace, or in all if that is empty.
func (l *lockedRouter) Named(namespace, name string) []model.ServiceName {
	return readRouter(l, func(r *model.Router) []model.ServiceName { return r.Named(namespace, name) })
}

// Relay returns how connections to a frontend are relayed; false: they are not.
func (l *lockedRouter) Relay(f model.Frontend) (model.Relayed, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.Relay(f)
}

// Names returns the names of all Services, in no order.
func (l *lockedRouter) Names() []model.ServiceName { return readRouter(l, (*model.Router).Names) }

// State is the progress of an agent.
type State struct {
	Started     time.Time // when New was called
	LastSync    time.Time // end of the last successful sync
	LastRequest time.Time // for a sync
	// Pending is the oldest request that no successful sync has served (10.6);
	// zero: there is none.
	Pending time.Time
}

// requests are the requests for syncs. The exported methods are part of [Agent].
type requests struct {
	asked   chan struct{} // a sync is requested
	changed atomic.Bool   // Load has changes
	moved   atomic.Bool   // Interfaces has changes
	awaited atomic.Int32  // number of commands that wait for a change

	mu     sync.Mutex
	state  State
	served time.Time // oldest request that the current sync serves
}

// Changed notifies the agent that Load has changes. It does not block and is safe
// for concurrent use.
func (r *requests) Changed() {
	r.changed.Store(true)
	r.requestSync()
}

// Hurry makes changes wait for no MinSyncPeriod until done is called: a command waits for
// one. It is safe for concurrent use.
func (r *requests) Hurry() (done func()) {
	r.awaited.Add(1)
	return func() { r.awaited.Add(-1) }
}

func (r *requests) AddressesChanged() {
	r.moved.Store(true)
	r.requestSync()
}

func (r *requests) requestSync() {
	r.mu.Lock()
	r.state.LastRequest = time.Now()
	if r.state.Pending.IsZero() {
		r.state.Pending = r.state.LastRequest
	}
	r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default: // one is waiting already
	}
}

// State returns the agent's progress. It is safe for concurrent use.
func (r *requests) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	if !r.served.IsZero() {
		s.Pending = r.served
	}
	return s
}

// beginSync marks the requests so far as those that the next sync serves.
func (r *requests) beginSync() {
	select {
	case <-r.asked:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.served.IsZero() {
		r.served = r.state.Pending
	}
	r.state.Pending = time.Time{}
}

// endSync discards the served requests, unless the sync failed.
func (r *requests) endSync(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.served = time.Time{}
	}
}

func (r *requests) noteSuccess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.LastSync = time.Now()
}
