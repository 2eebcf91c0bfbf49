package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/words"
)

// Rules translate packets; they cannot say who the client is in a connection, try another
// server, or reach 127.0.0.1. For Services of files that ask for it, rules send connections to
// this process instead, which relays them: it accepts them, and makes a second one to a server.

// RelayPort is the port at which this process takes the connections to Services that it relays.
const RelayPort = 10245

type RelayUse uint8

const (
	NoRelay      RelayUse = iota
	PlainRelay            // as they are
	ProxyV2Relay          // with a header of the PROXY protocol, version 2, to the server
)

// RelayNames are the names of the values, from [PlainRelay] on.
var RelayNames = []string{"true", "proxy-v2"}

// Relayed reports whether this process relays the connections to a frontend.
func (r *Route) Relayed() bool { return r.Service.Extra().Relay != NoRelay }

type Relayed struct {
	Service   ServiceName
	Servers   []Endpoint // that take new connections; none: all are refused
	Scheduler Scheduler  // round-robin, random or source-hash
	Use       RelayUse
	Timeout   time.Duration // without data, after which a connection is closed
}

// DefaultRelayTimeout is the time without data after which a relayed connection is closed.
const DefaultRelayTimeout = time.Hour

// Relay returns how connections to a frontend are relayed; false: they are not. Servers that
// are relayed frontends themselves are left out: connections would come back to this process.
func (r *frontends) Relay(f Frontend) (out Relayed, ok bool) {
	route := r.Serves(f)
	if route == nil || !route.Relayed() {
		return out, false
	}
	out = Relayed{Service: route.Service.Name, Scheduler: route.Scheduler(), Use: route.Service.Extra().Relay, Timeout: cmp.Or(route.Service.Extra().RelayTimeout, DefaultRelayTimeout)}
	d := route.Inside()
	if d.Verdict != Forward {
		return out, true
	}
	loops := func(e Endpoint) bool { return r.loopTarget(route, e) != nil }
	out.Servers = d.Endpoints
	if slices.ContainsFunc(d.Endpoints, loops) {
		out.Servers = slices.DeleteFunc(slices.Clone(d.Endpoints), loops)
	}
	return out, true
}

// Rules forward a connection once. An endpoint that is a frontend of this machine itself gets no
// connection: the rules do not see the packet again, which leaves by a route or is delivered to this
// machine. A relay opens connections of its own, so it reaches frontends of this machine, except
// those that it relays: connections could come back without end.

// Loop is an endpoint that gets no connections, because it is a frontend of this machine.
type Loop struct {
	Endpoint Endpoint
	Of       Object // the Service or Balance that has the frontend
}

// mostLoops is how many endpoints have a text of their own.
const mostLoops = 10

// LoopTexts says what is wrong, and what to do, in the words for a Service: for each of the first endpoints,
// and for all others together.
func LoopTexts(loops []Loop, in words.Vocabulary) (texts []string) {
	for _, l := range loops[:min(len(loops), mostLoops)] {
		texts = append(texts, in.Sprintf("endpoint %s is an address and port of %s on this machine, and gets no connections: rules forward a connection once; write the endpoints of that in its place",
			l.Endpoint.Address(), l.Of))
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

// Rules cannot serve NodePorts on loopback addresses: an answer from another machine to
// such an address is discarded by the kernel, unless route_localnet opens the loopback
// addresses of the node to its neighbours, and IPv6 has no such switch. A process listens
// there instead, and connects to another frontend of the Service.

var loopbacks = map[Family]netip.Addr{IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), IPv6: netip.IPv6Loopback()}

func Loopback(f Family) netip.Addr { return loopbacks[f] }

// HasLocalhost reports whether a range of loopback addresses includes the one that a
// listener uses.
func HasLocalhost(p netip.Prefix) bool { return p.Contains(loopbacks[FamilyOf(p.Addr())]) }

// Localhost returns the loopback addresses on which a listener serves NodePorts. A range
// of all addresses does not ask for them (6.14).
func (c *Config) Localhost() []netip.Addr {
	var out []netip.Addr
	for _, f := range Families {
		asked := func(p netip.Prefix) bool { return p.Addr().IsLoopback() && FamilyOf(p.Addr()) == f && HasLocalhost(p) }
		if !c.NoLocalhost && slices.ContainsFunc(c.NodePortAddresses, asked) {
			out = append(out, loopbacks[f])
		}
	}
	return out
}

// OnLocalhost reports whether a listener serves a frontend, and no rule.
func (f Frontend) OnLocalhost() bool { return f.Address.IsLoopback() }

// throughAddresses returns the addresses of the node through which listeners on localhost
// connect, one for each family in which NodePorts are served: the first one of the node, for
// it stays, or else any.
func (l *Locality) throughAddresses() (out []netip.Addr) {
	for _, f := range Families {
		first, ok := l.Node.primaryAddress(f)
		if !ok || !contains(l.NodePortAddresses, first) {
			first, ok = firstIn(f, l.NodePortAddresses)
		}
		if ok {
			out = append(out, first)
		}
	}
	return out
}

// BehindLocalhost returns the frontend that the listener of a NodePort on localhost connects
// to, and its route: the same NodePort on an address of the node, else the ClusterIP (6.17).
// The route is nil if there is none.
func (r *frontends) BehindLocalhost(on Frontend) (Frontend, *Route) {
	own := r.winners[on]
	if own == nil {
		return Frontend{}, nil
	}
	f := FamilyOf(on.Address)
	candidates := make([]Frontend, 0, 2)
	for _, a := range r.base.locality.through {
		if FamilyOf(a) == f {
			candidates = append(candidates, Frontend{Address: a, Protocol: on.Protocol, Port: on.Port})
		}
	}
	if a, ok := own.Service.ClusterIP(f); ok {
		candidates = append(candidates, Frontend{Address: a, Protocol: on.Protocol, Port: own.Port.Port})
	}
	for _, to := range candidates {
		if route := r.Serves(to); route != nil && route.PortName() == own.PortName() {
			return to, route
		}
	}
	return Frontend{}, nil
}
