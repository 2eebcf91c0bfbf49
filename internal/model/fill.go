package model

import "runtime"

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
	set := func() {
		r.routeAll(part, max(runtime.GOMAXPROCS(0)-1, 1))
		touched := make(map[Frontend]*Route, len(part))
		for i := range part {
			r.add(&part[i], touched)
		}
		r.settleClaims(touched)
		if changes := r.routeChanges(touched); wanted && len(changes) > 0 {
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
		room -= 2
		for _, slice := range s.Slices {
			room -= len(slice.Hosts)
		}
		if room <= 0 {
			set()
		}
	}
	set()
	part = last
	set()
	all := r.allAdded()
	r.refreshResults(all)
	return all
}

// sharesBudgets reports whether other Services decide about parts of the rules of this one, so
// that all must be known before: see settleBudgets and settleRanges.
func (s *ServiceState) sharesBudgets(byDefault Scheduler) bool {
	return s.Service != nil && (s.Service.Extras != nil || s.Service.slotAsk(byDefault) != slotAsk{})
}
