package model

import (
	"runtime"
	"slices"

	"github.com/nftproxy/nftproxy/internal/parallel"
)

// decided is the state of a Service with what follows from it and from the node,
// regardless of most other Services: any processor can decide it.
type decided struct {
	name    ServiceName
	state   ServiceState
	routes  []Route
	notices []Notice
	health  *HealthCheck // nil: it has none
}

// decideAtOnce is how many Services one processor takes at a time.
const decideAtOnce = 256

// decideAll decides about some Services, on all processors if there are many.
func (r *Router) decideAll(states map[ServiceName]ServiceState) []decided {
	out := make([]decided, 0, len(states))
	for name, s := range states {
		out = append(out, decided{name: name, state: s})
	}
	r.routeAll(out, runtime.GOMAXPROCS(0))
	return out
}

func (r *Router) routeAll(all []decided, processors int) {
	if len(all) == 1 { // the rule
		r.decideRoutes(&all[0])
		return
	}
	parallel.SpreadOver(processors, len(all), decideAtOnce, func(first, end int) {
		for i := range all[first:end] {
			r.decideRoutes(&all[first+i])
		}
	})
}

func (r *Router) decideAgain(name ServiceName) *decided {
	d := &decided{name: name, state: r.services[name].state}
	r.decideRoutes(d)
	return d
}

// decideRoutes decides the routes of one Service. It changes nothing of the router. A malformed
// object must not affect others: a panic leaves its Service out (13.20).
func (r *Router) decideRoutes(d *decided) {
	if d.state.Service == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			d.routes, d.health = nil, nil
			d.notices = []Notice{newNotice(d.state.Service.Object(), InternalError, "not served: internal error, please report it with the objects of this Service: %v", p)}
		}
	}()
	svc, notices := d.state.Service.restrictedTo(r.base.config.Families), []Notice(nil)
	_, unlimited := r.clientLimits.reduced[d.name]
	switch {
	case r.base.config.NoLimits:
		svc, notices = svc.withoutLimits()
	case unlimited:
		svc, notices = svc.withoutClientLimits()
	}
	svc, fitted := r.fitTables(svc, d.state.Service)
	d.routes = RouteService(svc, d.state.Slices, r.base.locality)
	if svc.HealthCheckNodePort != 0 {
		h := healthCheck(svc, d.state.Slices, d.routes, r.base.locality.Node)
		d.health = &h
	}
	d.notices = slices.Concat(notices, nodePortNotices(svc, r.base.locality), rangeNotices(svc, r.base.locality),
		maglevNotices(svc, d.state.Service, d.routes, r.base.config.Scheduler, fitted))
}

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
	return s.Service != nil && (s.Service.Extras != nil || s.Service.askForSlots(byDefault) != request{})
}
