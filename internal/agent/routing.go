package agent

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// lockedRouter is the router with its lock. Its exported methods are part of [Agent].
type lockedRouter struct {
	routing sync.RWMutex
	router  *model.Router
}

// Routing returns the current routing of this node, with notices about Services that the
// kernel serves as before. It is safe for concurrent use; its cost grows with the number of
// routes.
func (a *Agent) Routing() *model.Routing {
	a.routing.RLock()
	defer a.routing.RUnlock()
	r := a.router.Routing()
	r.Notices = slices.Concat(r.Notices, a.quarantine.notices, a.kept.notices)
	return r
}

// Routes calls yield with each route, in no order, until that returns false. It is safe for
// concurrent use. yield must not call the agent.
func (l *lockedRouter) Routes(yield func(*model.Route) bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	l.router.Each(yield)
}

// ServiceCIDRs returns the ranges in which unused addresses are dropped. It is safe for
// concurrent use.
func (l *lockedRouter) ServiceCIDRs() []netip.Prefix {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.ServiceCIDRs()
}

// HasRanges reports whether a Service asks for ranges of ports. It is safe for concurrent use.
func (l *lockedRouter) HasRanges() bool {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.HasRanges()
}

// View returns the state of a Service, or nil if there is none. It is safe for concurrent use.
func (l *lockedRouter) View(name model.ServiceName) *model.View {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.View(name)
}

// Serves returns the Service that has a frontend, if it is known at present: not while
// routes change. It is safe for concurrent use and never waits.
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

// Owner returns the frontend that serves an address and port: that frontend, a NodePort or
// a range; false: there is none. It is safe for concurrent use.
func (l *lockedRouter) Owner(f model.Frontend) (model.Frontend, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	route := l.router.Serves(f)
	if route == nil {
		return model.Frontend{}, false
	}
	return route.Frontend, true
}

// PortOf returns the service port of a frontend, as [Agent.Owner] finds it; false: there is
// none. It is safe for concurrent use.
func (l *lockedRouter) PortOf(f model.Frontend) (model.PortName, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	route := l.router.Serves(f)
	if route == nil {
		return model.PortName{}, false
	}
	return route.PortName(), true
}

// Holder returns a Service that has an address; false: there is none. It is safe for
// concurrent use; its cost grows with the number of routes.
func (l *lockedRouter) Holder(address netip.Addr) (name model.ServiceName, ok bool) {
	for r := range l.Routes {
		if r.Frontend.Address == address {
			name, ok = r.Service.Name, true
			break
		}
	}
	return name, ok
}

// BehindLocalhost returns where the listener of a NodePort on localhost connects to; false:
// connections that it would make are not forwarded. It is safe for concurrent use.
func (l *lockedRouter) BehindLocalhost(f model.Frontend) (netip.AddrPort, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	to, route := l.router.BehindLocalhost(f)
	if route == nil || route.Inside().Verdict != model.Forward {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(to.Address, to.Port), true
}

// IsBalance reports whether a Service comes from a Balance. It is safe for concurrent use.
func (l *lockedRouter) IsBalance(name model.ServiceName) bool {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.IsBalance(name)
}

// Words are the words for all Services together; empty: there are none. It is safe for concurrent
// use.
func (l *lockedRouter) Words() (in words.Vocabulary, empty bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	services, _ := l.router.Len()
	return l.router.Words(), services == 0
}

// Named returns the Services of a name in a namespace, or in all if that is empty. It is safe for
// concurrent use.
func (l *lockedRouter) Named(namespace, name string) []model.ServiceName {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.Named(namespace, name)
}

// Relay returns how connections to a frontend are relayed; false: they are not. It is safe for
// concurrent use.
func (l *lockedRouter) Relay(f model.Frontend) (model.Relayed, bool) {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.Relay(f)
}

// Names returns the names of all Services, in no order. It is safe for concurrent use.
func (l *lockedRouter) Names() []model.ServiceName {
	l.routing.RLock()
	defer l.routing.RUnlock()
	return l.router.Names()
}
