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

// routeAll decides about some Services, on so many processors if there are many.
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
