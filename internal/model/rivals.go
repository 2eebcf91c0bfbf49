package model

import (
	"maps"
	"net/netip"
	"slices"
)

// ranges are the claims of ranges of ports on all addresses. Overlapping ranges of an
// address and protocol exclude each other: the kernel holds them in interval maps. The
// first one by [compareClaims] is served, then the next one that does not overlap it, and
// so on.
type ranges struct {
	claims map[rangeAddress]*rangeClaims
	// unsettled have a claim that may have to be served, or no longer.
	unsettled map[rangeAddress]struct{}
	// asking are the Services that ask for ranges on an address, also those that do not
	// get them because it is one of the node.
	asking map[netip.Addr]map[ServiceName]struct{}
}

type rangeAddress struct {
	address  netip.Addr
	protocol Protocol
}

type rangeClaims struct {
	all    claims
	served claims // no two overlap; each of the others overlaps one that comes first
	// Since they were settled: left are those that were served and have been withdrawn,
	// and came are new ones.
	left claims
	came map[*Route]struct{}
}

func (f Frontend) rangeAddress() rangeAddress { return rangeAddress{f.Address, f.Protocol} }

func (r *ranges) countService(s *Service, asks bool) {
	for _, a := range s.rangeAddresses(false) {
		switch {
		case !asks:
			if delete(r.asking[a], s.Name); len(r.asking[a]) == 0 {
				delete(r.asking, a)
			}
		case r.asking[a] == nil:
			r.asking[a] = map[ServiceName]struct{}{s.Name: {}}
		default:
			r.asking[a][s.Name] = struct{}{}
		}
	}
}

// servicesOn returns the Services whose ranges depend on addresses that the node gets or
// loses. Both lists are sorted.
func (r *ranges) servicesOn(before, after []netip.Addr) map[ServiceName]struct{} {
	out := make(map[ServiceName]struct{})
	if len(r.asking) == 0 {
		return out
	}
	for _, a := range slices.Concat(before, after) {
		if contains(before, a) != contains(after, a) {
			for name := range r.asking[a] {
				out[name] = struct{}{}
			}
		}
	}
	return out
}

// firstServed returns the first of the served ranges that one overlaps, by claim.
func (c *rangeClaims) firstServed(f Frontend) *Route {
	var first *Route
	for o := range c.served.eachOverlapping(f) {
		if first == nil || compareClaims(o, first) < 0 {
			first = o
		}
	}
	return first
}

// joinRange adds a claim of a range. In place of an equal one that was served it is served,
// too, so that a Service with other endpoints costs nothing on behalf of its rivals; else
// settleRanges decides.
func (r *frontends) joinRange(route *Route) {
	at := route.Frontend.rangeAddress()
	c := r.ranges.claims[at]
	if c == nil {
		c = &rangeClaims{came: make(map[*Route]struct{})}
		r.ranges.claims[at] = c
	}
	c.all.add(route)
	if c.left.remove(route) {
		c.served.add(route)
		r.winners[route.Frontend] = route
		return
	}
	c.came[route] = struct{}{}
	r.ranges.unsettled[at] = struct{}{}
}

// leaveRange removes a claim of a range. If it kept others from being served,
// settleRanges decides.
func (r *frontends) leaveRange(route *Route) {
	f := route.Frontend
	at := f.rangeAddress()
	c := r.ranges.claims[at]
	c.all.remove(route)
	delete(c.came, route)
	if r.winners[f] == route {
		c.served.remove(route)
		delete(r.winners, f)
		c.left.add(route)
		r.ranges.unsettled[at] = struct{}{}
	}
}

// settleRanges decides between overlapping ranges after changes, once for each address
// and protocol. It adds the previous routes to touched.
func (r *frontends) settleRanges(touched map[Frontend]*Route) {
	for at := range r.ranges.unsettled {
		c := r.ranges.claims[at]
		r.settleAddress(c, touched)
		if c.all.n == 0 {
			delete(r.ranges.claims, at)
		}
	}
	clear(r.ranges.unsettled)
}

// settleAddress decides about the claims that came, and about those that the ones that left, or
// that lose their ports now, kept from being served: in the order of claims, because
// each depends on those before it alone. All others stay as they are.
func (r *frontends) settleAddress(c *rangeClaims, touched map[Frontend]*Route) {
	open := claimQueue{claims: claims{claimOrder: byClaim}, known: make(map[*Route]struct{})}
	for route := range c.left.eachRoute {
		c.release(route, &open)
	}
	for route := range c.came {
		open.add(route)
	}
	c.left = claims{}
	clear(c.came)
	for open.n > 0 {
		route := open.takeFirst()
		if b := c.firstServed(route.Frontend); b != nil && compareClaims(b, route) <= 0 {
			continue
		}
		losers := slices.Collect(c.served.eachOverlapping(route.Frontend))
		for _, o := range losers {
			r.noteRoute(o.Frontend, touched)
			delete(r.winners, o.Frontend)
			c.served.remove(o)
		}
		r.noteRoute(route.Frontend, touched)
		r.winners[route.Frontend] = route
		c.served.add(route)
		for _, o := range losers {
			c.release(o, &open)
		}
	}
}

// release opens the claims that a range has kept from being served, and no other does.
func (c *rangeClaims) release(route *Route, open *claimQueue) {
	for o := range c.all.eachOverlapping(route.Frontend) {
		if b := c.firstServed(o.Frontend); b == nil || compareClaims(o, b) < 0 {
			open.add(o)
		}
	}
}

// claimQueue are claims to decide about. Each gets there once.
type claimQueue struct {
	claims
	known map[*Route]struct{} // also those that have been taken
}

func (q *claimQueue) add(route *Route) {
	if _, ok := q.known[route]; !ok {
		q.known[route] = struct{}{}
		q.claims.add(route)
	}
}

// rivalsOf returns the route that keeps a range from being served, or nil, and otherwise
// those that are not served because of it, of other service ports.
func (r *ranges) rivalsOf(route *Route) (winner *Route, losers []*Route) {
	c := r.claims[route.Frontend.rangeAddress()]
	if winner = c.firstServed(route.Frontend); winner.PortName() != route.PortName() {
		return winner, nil
	}
	for o := range c.all.eachOverlapping(winner.Frontend) {
		if o.PortName() != route.PortName() && c.firstServed(o.Frontend) == winner {
			losers = append(losers, o)
		}
	}
	return nil, losers
}

// overlaps finds NodePorts with the unspecified address that compete with an address of a
// Service, which the node has, for the same port (4.37). They are different frontends, so
// claims do not show it.
type overlaps map[Frontend]map[Frontend]struct{} // with addresses of Services, by OnNode

// isExternal reports whether a Service names the address of a route, and a node may
// have it.
func (r *Route) isExternal() bool { return r.Kind == ExternalIP || r.Kind == LoadBalancerIP }

func (o overlaps) recordClaim(f Frontend, claimed bool) {
	w := f.OnNode()
	if claimed {
		if o[w] == nil {
			o[w] = make(map[Frontend]struct{})
		}
		o[w][f] = struct{}{}
		return
	}
	if delete(o[w], f); len(o[w]) == 0 {
		delete(o, w)
	}
}

func (r *frontends) recordOverlap(route *Route) {
	f := route.Frontend
	switch {
	case !r.base.locality.Wildcards || f.IsRange(): // any port wins over a range
	case route.Kind == NodePort:
		r.reports.stale = r.reports.stale || len(r.overlaps[f]) > 0
	case route.isExternal():
		winner := r.winners[f]
		claimed := winner != nil && winner.isExternal()
		for loser := range r.losers[f].eachRoute {
			claimed = claimed || loser.isExternal()
		}
		r.overlaps.recordClaim(f, claimed)
		if _, ok := r.winners[f.OnNode()]; ok && r.onNode(f.Address) {
			r.reports.stale = true
		}
	}
}

// onNode reports whether an address serves NodePorts with the unspecified address.
func (r *frontends) onNode(a netip.Addr) bool { return contains(r.NodePortAddresses(), a) }

// settleOverlaps decides which of the touched frontends, and of those that compete with a
// touched NodePort, are left to NodePorts. It adds the previous routes to touched; nil: all
// frontends are new.
func (r *frontends) settleOverlaps(touched map[Frontend]*Route) {
	if len(r.overlaps) == 0 && len(r.yielding) == 0 {
		return
	}
	if touched == nil {
		for w := range r.overlaps {
			r.settleOverlap(w, nil)
		}
		return
	}
	for _, f := range slices.Collect(maps.Keys(touched)) {
		r.settleOverlap(f, touched)
	}
}

// settleOverlap decides about a frontend, and about those that compete with it if it is a
// NodePort.
func (r *frontends) settleOverlap(f Frontend, touched map[Frontend]*Route) {
	for o := range r.overlaps[f] {
		r.settleYielding(o, touched)
	}
	r.settleYielding(f, touched)
}

// settleYielding decides whether a frontend with an address of the node is left to a NodePort with the
// unspecified address, because it has no endpoint, and the NodePort has one (4.40).
func (r *frontends) settleYielding(f Frontend, touched map[Frontend]*Route) {
	_, before := r.yielding[f]
	own, node := r.winners[f], r.winners[f.OnNode()]
	now := own != nil && node != nil && own.isExternal() && r.onNode(f.Address) &&
		own.Inside().Verdict != Forward && node.Inside().Verdict == Forward
	if now != before {
		r.noteRoute(f, touched)
		r.reports.stale = true
	}
	switch {
	case now:
		r.yielding[f] = struct{}{}
	case before:
		delete(r.yielding, f)
	default:
		return
	}
	if own != nil { // its notice names the NodePort
		r.reports.markStale(own.Service.Name)
	}
	for loser := range r.losers[f].eachRoute {
		r.reports.markStale(loser.Service.Name)
	}
}

// touchOverlaps notes the routes of frontends that compete with NodePorts on addresses that
// the node gets or loses. Both lists are sorted.
func (r *frontends) touchOverlaps(before, after []netip.Addr, touched map[Frontend]*Route) {
	for _, frontends := range r.overlaps {
		for f := range frontends {
			if contains(before, f.Address) != contains(after, f.Address) {
				r.noteRoute(f, touched)
			}
		}
	}
}

// overlapNotices reports the NodePorts that an address of the node does not serve.
func (r *frontends) overlapNotices() []Notice {
	var out []Notice
	for w, frontends := range r.overlaps {
		loser := r.winners[w]
		if loser == nil {
			continue
		}
		for f := range frontends {
			if winner := r.winnerOf(f); winner != nil && winner.PortName() != loser.PortName() && r.onNode(f.Address) {
				out = append(out, conflictNotice(f, loser, winner))
			}
		}
	}
	return out
}
