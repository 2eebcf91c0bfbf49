package agent

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

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
func (a *Agent) Routes(yield func(*model.Route) bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	a.router.Each(yield)
}

// ServiceCIDRs returns the ranges in which unused addresses are dropped. It is safe for
// concurrent use.
func (a *Agent) ServiceCIDRs() []netip.Prefix {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.ServiceCIDRs()
}

// HasRanges reports whether a Service asks for ranges of ports. It is safe for concurrent use.
func (a *Agent) HasRanges() bool {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.HasRanges()
}

// View returns the state of a Service, or nil if there is none. It is safe for concurrent use.
func (a *Agent) View(name model.ServiceName) *model.View {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.View(name)
}

// Serves returns the Service that has a frontend, if it is known at present: not while
// routes change. It is safe for concurrent use and never waits.
func (a *Agent) Serves(f model.Frontend) (model.ServiceName, bool) {
	if !a.routing.TryRLock() {
		return model.ServiceName{}, false
	}
	defer a.routing.RUnlock()
	route := a.router.Serves(f)
	if route == nil {
		return model.ServiceName{}, false
	}
	return route.Service.Name, true
}

// Owner returns the frontend that serves an address and port: that frontend, a NodePort or
// a range; false: there is none. It is safe for concurrent use.
func (a *Agent) Owner(f model.Frontend) (model.Frontend, bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	route := a.router.Serves(f)
	if route == nil {
		return model.Frontend{}, false
	}
	return route.Frontend, true
}

// PortOf returns the service port of a frontend, as [Agent.Owner] finds it; false: there is
// none. It is safe for concurrent use.
func (a *Agent) PortOf(f model.Frontend) (model.PortName, bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	route := a.router.Serves(f)
	if route == nil {
		return model.PortName{}, false
	}
	return route.PortName(), true
}

// Holder returns a Service that has an address; false: there is none. It is safe for
// concurrent use; its cost grows with the number of routes.
func (a *Agent) Holder(address netip.Addr) (name model.ServiceName, ok bool) {
	for r := range a.Routes {
		if r.Frontend.Address == address {
			name, ok = r.Service.Name, true
			break
		}
	}
	return name, ok
}

// BehindLocalhost returns where the listener of a NodePort on localhost connects to; false:
// connections that it would make are not forwarded. It is safe for concurrent use.
func (a *Agent) BehindLocalhost(f model.Frontend) (netip.AddrPort, bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	to, route := a.router.BehindLocalhost(f)
	if route == nil || route.Inside().Verdict != model.Forward {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(to.Address, to.Port), true
}

// IsBalance reports whether a Service comes from a Balance. It is safe for concurrent use.
func (a *Agent) IsBalance(name model.ServiceName) bool {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.IsBalance(name)
}

// Words are the words for all Services together; empty: there are none. It is safe for concurrent
// use.
func (a *Agent) Words() (in words.Vocabulary, empty bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	services, _ := a.router.Len()
	return a.router.Words(), services == 0
}

// Named returns the Services of a name in a namespace, or in all if that is empty. It is safe for
// concurrent use.
func (a *Agent) Named(namespace, name string) []model.ServiceName {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.Named(namespace, name)
}

// Relay returns how connections to a frontend are relayed; false: they are not. It is safe for
// concurrent use.
func (a *Agent) Relay(f model.Frontend) (model.Relayed, bool) {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.Relay(f)
}

// Names returns the names of all Services, in no order. It is safe for concurrent use.
func (a *Agent) Names() []model.ServiceName {
	a.routing.RLock()
	defer a.routing.RUnlock()
	return a.router.Names()
}
