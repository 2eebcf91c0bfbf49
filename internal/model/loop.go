package model

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/words"
)

// Rules forward a connection once. An endpoint that is a frontend of this machine itself gets no
// connection: the rules do not see the packet again, which leaves by a route or is delivered to this
// machine. A relay opens connections of its own, so it reaches frontends of this machine, except
// those that it relays: connections could come back without end.

// Loop is an endpoint that gets no connections, because it is a frontend of this machine.
type Loop struct {
	Endpoint Endpoint
	Of       Object // the Service or Balance that has the frontend
}

// Text says what is wrong, and what to do, in the words for a Service.
func (l Loop) Text(in words.Vocabulary) string {
	return in.Sprintf("endpoint %s is an address and port of %s on this machine, and gets no connections: rules forward a connection once; write the endpoints of that in its place",
		l.Endpoint.Address(), l.Of)
}

// mostLoops is how many endpoints have a text of their own.
const mostLoops = 10

// LoopTexts returns a text for each of the first endpoints, and one for all others.
func LoopTexts(loops []Loop, in words.Vocabulary) (texts []string) {
	for _, l := range loops[:min(len(loops), mostLoops)] {
		texts = append(texts, l.Text(in))
	}
	if n := len(loops) - mostLoops; n > 0 {
		texts = append(texts, in.Sprintf("%d more endpoints are addresses and ports that this machine serves, and get no connections", n))
	}
	return texts
}

// loopTarget returns the frontend of this machine that an endpoint of a route is; nil: it may get
// connections.
func (r *frontends) loopTarget(route *Route, e Endpoint) *Route {
	to := r.Serves(Frontend{Address: e.Host.Address, Protocol: route.Frontend.Protocol, Port: e.Port})
	if to == nil || route.Relayed() && !to.Relayed() {
		return nil
	}
	return to
}

// Loops returns the endpoints of a Service that are frontends of this machine, each once, in the
// order of its frontends. The cost depends on the Service alone.
func (r *Router) Loops(name ServiceName) (out []Loop) {
	s, ok := r.services[name]
	if !ok {
		return nil
	}
	known := make(map[netip.AddrPort]bool) // which may be many
	for i := range s.routes {
		route := &s.routes[i]
		for _, e := range slices.Concat(route.Inside().Endpoints, route.Outside().Endpoints) {
			if to := r.loopTarget(route, e); to != nil && !known[e.Address()] {
				known[e.Address()] = true
				out = append(out, Loop{e, to.Service.Object()})
			}
		}
	}
	return out
}
