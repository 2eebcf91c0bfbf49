package model

import (
	"cmp"
	"slices"
	"time"
)

// Rules translate packets; they cannot say who the client is in a connection, try another
// server, or reach 127.0.0.1. For Services of files that ask for it, rules send connections to
// this process instead, which relays them: it accepts them, and makes a second one to a server.

// RelayPort is the port at which this process takes the connections to Services that it relays.
const RelayPort = 10245

// RelayUse is whether connections of a Service are relayed.
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

// Relayed is how connections to a frontend are relayed.
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
