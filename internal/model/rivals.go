package model

import (
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
	served []*Route // by port; no two overlap
	losers []*Route // each overlaps one that is served, and that comes first
}

func newRanges() ranges {
	return ranges{make(map[rangeAddress]*rangeClaims), make(map[rangeAddress]struct{}), make(map[netip.Addr]map[ServiceName]struct{})}
}

func (f Frontend) rangeAddress() rangeAddress { return rangeAddress{f.Address, f.Protocol} }

// ask adds or removes a Service on the addresses on which it asks for ranges.
func (r *ranges) ask(s *Service, asks bool) {
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

// affected returns the Services whose ranges depend on addresses that the node gets or
// loses. Both lists are sorted.
func (r *ranges) affected(before, after []netip.Addr) map[ServiceName]struct{} {
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

// overlapping returns the served ranges that share ports with another one, by port.
func (c *rangeClaims) overlapping(f Frontend) []*Route {
	first, _ := slices.BinarySearchFunc(c.served, f.Port, func(r *Route, port uint16) int { return int(r.Frontend.Last) - int(port) })
	n := first
	for n < len(c.served) && c.served[n].Frontend.Port <= max(f.Port, f.Last) {
		n++
	}
	return c.served[first:n]
}

// serve adds a range that overlaps no served one.
func (c *rangeClaims) serve(route *Route) {
	i, _ := slices.BinarySearchFunc(c.served, route.Frontend, func(r *Route, f Frontend) int { return r.Frontend.Compare(f) })
	c.served = slices.Insert(c.served, i, route)
}

// blocker returns the first of the served ranges that one overlaps, by claim.
func (c *rangeClaims) blocker(f Frontend) *Route {
	var first *Route
	for _, o := range c.overlapping(f) {
		if first == nil || compareClaims(o, first) < 0 {
			first = o
		}
	}
	return first
}

// find returns the range with the port of a frontend, or nil.
func (r *ranges) find(f Frontend) *Route {
	if c := r.claims[f.rangeAddress()]; c != nil {
		return c.blocker(f)
	}
	return nil
}

// joinRange adds a claim of a range. If that overlaps others, settleRanges decides.
func (r *Router) joinRange(route *Route) {
	f := route.Frontend
	at := f.rangeAddress()
	c := r.ranges.claims[at]
	if c == nil {
		c = &rangeClaims{}
		r.ranges.claims[at] = c
	}
	if len(c.overlapping(f)) == 0 {
		c.serve(route)
		r.winners[f] = route
		return
	}
	c.losers = append(c.losers, route)
	r.ranges.unsettled[at] = struct{}{}
}

// leaveRange removes a claim of a range. If it kept others from being served,
// settleRanges decides.
func (r *Router) leaveRange(route *Route) {
	f := route.Frontend
	at := f.rangeAddress()
	c := r.ranges.claims[at]
	if i := slices.Index(c.losers, route); i >= 0 {
		c.losers = slices.Delete(c.losers, i, i+1)
		r.staleNotices = true
	} else {
		i, _ := slices.BinarySearchFunc(c.served, f, func(r *Route, f Frontend) int { return r.Frontend.Compare(f) })
		c.served = slices.Delete(c.served, i, i+1)
		delete(r.winners, f)
		if slices.ContainsFunc(c.losers, func(o *Route) bool { return o.Frontend.Overlaps(f) }) {
			r.ranges.unsettled[at] = struct{}{}
		}
	}
	if len(c.served)+len(c.losers) == 0 {
		delete(r.ranges.claims, at)
	}
}

// settleRanges decides between overlapping ranges after changes, once for each address
// and protocol. It adds the previous routes to touched.
func (r *Router) settleRanges(touched map[Frontend]*Route) {
	for at := range r.ranges.unsettled {
		if c := r.ranges.claims[at]; c != nil {
			r.settle(c, touched)
		}
	}
	if len(r.ranges.unsettled) > 0 {
		r.ranges.unsettled, r.staleNotices = make(map[rangeAddress]struct{}), true
	}
}

// settle decides between all claims of an address and protocol.
func (r *Router) settle(c *rangeClaims, touched map[Frontend]*Route) {
	before, all := c.served, slices.Concat(c.served, c.losers)
	slices.SortFunc(all, compareClaims)
	c.served, c.losers = nil, nil
	for _, route := range all {
		if len(c.overlapping(route.Frontend)) > 0 {
			c.losers = append(c.losers, route)
		} else {
			c.serve(route)
		}
	}
	for _, route := range before {
		if c.blocker(route.Frontend) != route {
			r.touch(route.Frontend, touched)
			delete(r.winners, route.Frontend)
		}
	}
	for _, route := range c.served {
		if r.winners[route.Frontend] != route {
			r.touch(route.Frontend, touched)
			r.winners[route.Frontend] = route
		}
	}
}

// conflicts reports the ranges that are not served because they overlap those of other
// Services.
func (r *ranges) conflicts() []Notice {
	var out []Notice
	for _, c := range r.claims {
		for _, loser := range c.losers {
			winner := c.blocker(loser.Frontend)
			switch {
			case winner.PortName() == loser.PortName():
			case winner.Frontend == loser.Frontend:
				out = append(out, conflict(loser.Frontend, loser, winner))
			default:
				out = append(out, notice(loser.Service.Object(), Conflict, "%s (%s) is not served: it overlaps %s of %s",
					loser.Frontend, loser.Kind, winner.Frontend, winner.Service.Object()))
			}
		}
	}
	return out
}

// rivals returns the route that keeps a range from being served, or nil, and otherwise
// those that are not served because of it, of other service ports.
func (r *ranges) rivals(route *Route) (winner *Route, losers []*Route) {
	c := r.claims[route.Frontend.rangeAddress()]
	if winner = c.blocker(route.Frontend); winner.PortName() != route.PortName() {
		return winner, nil
	}
	for _, loser := range c.losers {
		if loser.PortName() != route.PortName() && c.blocker(loser.Frontend) == winner {
			losers = append(losers, loser)
		}
	}
	return nil, losers
}
