package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Echo returns the frontend that stands for the echo requests to an address, which ICMP
// and ICMPv6 have no ports for. No Service asks for it: one of the routes of the address
// decides.
func Echo(a netip.Addr) Frontend { return Frontend{Address: a, Protocol: EchoProtocol(FamilyOf(a))} }

// IsEcho reports whether the frontend stands for echo requests.
func (f Frontend) IsEcho() bool { return f.Protocol.IsEcho() }

// compareEchoes orders the routes of an address; the first one decides about echo
// requests. That is the one for which most clients get an answer, except that a ClusterIP
// belongs to its Service.
func compareEchoes(a, b *Route) int {
	return cmp.Or(
		CompareBool(a.Kind != ClusterIP, b.Kind != ClusterIP),
		CompareBool(b.Inside().Verdict == Forward, a.Inside().Verdict == Forward),
		CompareBool(b.Outside().Verdict == Forward, a.Outside().Verdict == Forward),
		CompareBool(a.Sources != nil, b.Sources != nil),
		compareClaims(a, b),
		a.Frontend.Compare(b.Frontend),
	)
}

// answersEcho reports whether the node may answer echo requests to the address of a route: to
// ClusterIPs, and to external addresses that are no addresses of nodes, as far as is known.
// A Service with an address of this node has addresses of other nodes, too, as where k3s
// balances load. The rules leave out all addresses that this node has at present.
func (b *base) answersEcho(route *Route) bool {
	a := route.Frontend.Address
	switch {
	case route.Kind == NodePort:
		return false
	case route.Kind == ClusterIP:
		return true
	}
	s, own := route.Service, b.locality.Node.Addresses
	if slices.Contains(own, a) || !s.Balance && slices.ContainsFunc(own, s.Serves) {
		return false
	}
	ranges := b.config.LoadBalancerCIDRs
	return len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// answerFrom returns the addresses of this node to which echo requests are translated. They
// cannot be addresses of the interface that receives the request: a pod's may have none.
func answerFrom(node *Node, c Config) map[Family]netip.Addr {
	if !c.AnswerPing {
		return nil
	}
	out := make(map[Family]netip.Addr)
	for _, f := range Families {
		own := c.InterfaceAddresses
		if a, ok := node.primaryAddress(f); ok && (len(own) == 0 || slices.Contains(own, a)) {
			out[f] = a
			continue
		}
		usable := func(a netip.Addr) bool { return FamilyOf(a) == f && !a.IsLoopback() && !a.IsLinkLocalUnicast() }
		if i := slices.IndexFunc(own, usable); i >= 0 {
			out[f] = own[i]
		}
	}
	return out
}

// echoRoutes returns, of the routes of one Service, the one of each address that decides
// about echo requests.
func (b *base) echoRoutes(routes []Route) (out []*Route) {
	if !b.config.AnswerPing {
		return nil
	}
	for i := range routes {
		route := &routes[i]
		at := slices.IndexFunc(out, func(o *Route) bool { return o.Frontend.Address == route.Frontend.Address })
		switch {
		case at >= 0 && compareEchoes(route, out[at]) < 0:
			out[at] = route
		case at < 0 && b.answersEcho(route):
			out = append(out, route)
		}
	}
	return out
}

// countEchoes adds the routes of a Service at their addresses, or removes them; n is 1 or -1.
func (r *frontends) countEchoes(s *routed, n int, touched map[Frontend]*Route) {
	for _, route := range r.base.echoRoutes(s.routes) {
		a := route.Frontend.Address
		f := FamilyOf(a)
		if !r.base.answerFrom[f].IsValid() {
			before := r.unanswered[f]
			r.unanswered[f] += n
			r.reports.stale = r.reports.stale || (before == 0) != (r.unanswered[f] == 0)
			continue
		}
		r.noteRoute(Echo(a), touched)
		if n > 0 {
			r.echoes.join(a, route)
		} else {
			r.echoes.removeClaim(a, route)
		}
	}
}

func (r *Router) echoNotices() (out []Notice) {
	for _, f := range Families {
		if r.unanswered[f] > 0 {
			out = append(out, newNotice(Object{Kind: "Node", Name: r.base.config.NodeName}, NoPingAddress,
				r.Words().Text("echo requests to Services are not answered over %s: no such address of the node is known; give its Node object or --bind-address"), f))
		}
	}
	return out
}

func (r *frontends) winnerOf(f Frontend) *Route {
	if f.IsEcho() {
		return r.echoes.winners[f.Address]
	}
	if _, yields := r.yielding[f]; yields {
		return nil
	}
	return r.winners[f]
}

// Echo returns the route that decides about echo requests to an address, or nil: they are
// not answered.
func (r *frontends) Echo(a netip.Addr) *Route { return r.echoes.winners[a] }

// Echoes returns these routes, in the order of their addresses.
func (r *frontends) Echoes() []*Route {
	out := slices.AppendSeq(make([]*Route, 0, len(r.echoes.winners)), maps.Values(r.echoes.winners))
	slices.SortFunc(out, func(a, b *Route) int { return a.Frontend.Address.Compare(b.Frontend.Address) })
	return out
}

// EchoAnswer returns the verdicts on echo requests to the address of a route, from pods and
// the node, and from clients outside of the cluster: Forward if the node answers them.
// Reject means that no rule handles them, because no endpoint is usable.
func (r *Route) EchoAnswer() (inside, outside Verdict) {
	if r.Inside().Verdict != Forward {
		return Reject, Reject
	}
	return Forward, r.Outside().Verdict
}

// ViewedEcho is an address of a Service whose echo requests the node may answer.
type ViewedEcho struct {
	Address netip.Addr
	// Inside and Outside report whether pods and the node, and clients outside of the
	// cluster, get an answer.
	Inside, Outside bool
	Winner          *Route // of the Service that decides instead; nil: this one does
}

func (r *frontends) viewEchoes(s *routed) (out []ViewedEcho) {
	for _, route := range r.base.echoRoutes(s.routes) {
		winner := r.echoes.winners[route.Frontend.Address]
		if winner == nil { // no address of the node is known
			continue
		}
		inside, outside := winner.EchoAnswer()
		e := ViewedEcho{Address: route.Frontend.Address, Inside: inside == Forward, Outside: outside == Forward}
		if winner.Service.Name != s.state.Service.Name {
			e.Winner = winner
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b ViewedEcho) int { return a.Address.Compare(b.Address) })
	return out
}

// AnswersDiffer reports whether other clients get echo replies after the change.
func (c *RouteChange) AnswersDiffer() bool {
	answers := func(r *Route) (inside, outside Verdict, sources *Sources) {
		if r == nil {
			return Reject, Reject, nil
		}
		if inside, outside = r.EchoAnswer(); inside == Forward {
			sources = r.Sources
		}
		return inside, outside, sources
	}
	inside, outside, sources := answers(c.Old)
	nowInside, nowOutside, nowSources := answers(c.New)
	return inside != nowInside || outside != nowOutside || !sources.Equal(nowSources)
}
