package model

import (
	"runtime"
	"slices"
)

// firstFill is how many times smaller than the others the first part of a fill is.
const firstFill = 8

// Fill sets the state of all Services of a router that has none, as [Router.SetServices] does,
// in parts. It calls each for the frontends that a part changes, until that returns false: what
// these follow from is complete at that time, but for rivals of a later part, which
// changes their frontends again. A part has at most about so many endpoints, and two more for each
// Service; the first ones have fewer, so that the first call comes soon. Fill decides on all processors
// but one, which is busy with the parts. It returns the frontends of all parts, each once and in no
// order.
func (r *Router) Fill(states map[ServiceName]ServiceState, size int, each func([]RouteChange) bool) []RouteChange {
	r.soon = nil
	r.services, r.balances, r.namespaces = make(map[ServiceName]*routed, len(states)), 0, make(map[string]int)
	r.winners = make(map[Frontend]*Route, len(states))
	var part, last []decided
	most := max(size/firstFill, 1)
	room, wanted := most, true
	set := func(add func([]decided) []RouteChange) {
		r.routeAll(part, max(runtime.GOMAXPROCS(0)-1, 1))
		if changes := add(part); wanted && len(changes) > 0 {
			wanted = each(changes)
		}
		most = min(2*most, size)
		part, room = part[:0], most
	}
	for name, s := range states {
		d := decided{name: name, state: s}
		if s.sharesBudgets(r.base.config.Scheduler) {
			last = append(last, d)
			continue
		}
		part = append(part, d)
		if room -= 2 + s.countHosts(); room <= 0 {
			set(r.addMore)
		}
	}
	set(r.addMore)
	part = last
	set(r.addLast)
	all := r.allAdded()
	r.refreshResults(all)
	return all
}

// addMore adds Services whose frontends are no ranges to those that the router has, and returns what
// changes. Nearly all frontends are new, and only the map of winners has them.
func (r *Router) addMore(all []decided) []RouteChange {
	added := make([]RouteChange, 0, len(all))
	touched := make(map[Frontend]*Route) // the others
	for i := range all {
		d := &all[i]
		if d.state.Service != nil {
			s := r.addService(d)
			for j := range s.routes {
				if route := &s.routes[j]; r.claimMore(route, touched) {
					added = append(added, RouteChange{route.Frontend, nil, route})
				}
			}
			r.countEchoes(s, 1, touched)
		}
		r.askBudgets(d.name, d.state.Service)
	}
	r.settleOverlaps(touched)
	if len(r.overlaps) > 0 {
		for _, c := range added {
			r.settleOverlap(c.Frontend, touched)
		}
	}
	if len(touched) == 0 {
		return added
	}
	added = slices.DeleteFunc(added, func(c RouteChange) bool {
		_, rivals := touched[c.Frontend]
		if rivals {
			touched[c.Frontend] = nil // before all of them
		}
		return rivals
	})
	return append(added, r.routeChanges(touched)...)
}

// claimMore adds a frontend of a Service, and reports whether no other one has it. Otherwise it adds
// the route before to touched.
func (r *frontends) claimMore(route *Route, touched map[Frontend]*Route) bool {
	loser := r.claimFrontend(route)
	if loser == nil {
		return true
	}
	if _, ok := touched[route.Frontend]; !ok {
		if loser == route {
			loser = r.winnerOf(route.Frontend)
		}
		touched[route.Frontend] = loser
	}
	return false
}

// addLast adds the last Services, and decides about all budgets.
func (r *Router) addLast(all []decided) []RouteChange {
	touched := make(map[Frontend]*Route)
	for i := range all {
		r.add(&all[i], touched)
	}
	r.settleClaims(touched)
	return r.routeChanges(touched)
}

// sharesBudgets reports whether other Services decide about parts of the rules of this one, so
// that all must be known before: see settleBudgets and settleRanges.
func (s *ServiceState) sharesBudgets(byDefault Scheduler) bool {
	return s.Service != nil && (s.Service.Extras != nil || s.Service.slotAsk(byDefault) != slotAsk{})
}

func (s *ServiceState) countHosts() (n int) {
	for _, slice := range s.Slices {
		n += len(slice.Hosts)
	}
	return n
}
