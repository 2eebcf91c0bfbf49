package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/words"
)

// ServiceState is a Service with its EndpointSlices. The Service is nil if
// there is none; slices may be left.
type ServiceState struct {
	Service *Service
	Slices  []*EndpointSlice
}

// RouteChange is a frontend whose route may have changed.
type RouteChange struct {
	Frontend Frontend
	Old, New *Route // nil: not served before, or now
}

// Router holds the route of every frontend and follows changes, at a cost that
// depends on the change only. Its results depend on the current state, not on the
// order of changes. It is not safe for concurrent use.
type Router struct {
	registry
	frontends
	clientLimits allotment
	slots        allotment
	soon         *announced // nil: no digest is
}

// registry has the Services of a [Router], and sums of them.
type registry struct {
	services map[ServiceName]*routed
	balances int // of the services, that come from a Balance
	// namespaces has the number of services in each.
	namespaces   map[string]int
	withoutLocal map[Family]WithoutLocal
	// noticed are the notices about Services by themselves.
	noticed map[ServiceName][]Notice
	health  map[ServiceName]HealthCheck
	// healthChecks are built again when they are stale.
	healthChecks []HealthCheck
	staleHealth  bool
}

// frontends decides which route of a [Router] each frontend has.
type frontends struct {
	base base
	// The winners are the routes of all frontends, the losers those of frontends with one
	// port.
	contests[Frontend]
	echoes     contests[netip.Addr] // of routes whose address may answer echo requests
	unanswered map[Family]int       // Services that get no echoes, because the node has no address
	overlaps   overlaps
	yielding   map[Frontend]struct{} // winners that are not served: NodePorts are (4.37)
	ranges     ranges
	reports    reports // are built again when they are stale
}

type routed struct {
	state  ServiceState
	routes []Route
}

// NewRouter returns a router for a node without Services.
func NewRouter() *Router {
	r := &Router{registry: registry{services: make(map[ServiceName]*routed)}}
	r.base = newBase(Config{}, nil, nil)
	r.rebuildRoutes()
	return r
}

// SetServices sets the state of some Services. It returns the frontends that may
// have changed, each once and in no order.
func (r *Router) SetServices(states map[ServiceName]ServiceState) []RouteChange {
	touched := make(map[Frontend]*Route)
	if len(r.services)+len(r.winners)+len(r.echoes.winners) == 0 { // maps of the final size take less memory and time
		r.services = make(map[ServiceName]*routed, len(states))
		r.winners = make(map[Frontend]*Route, len(states))
		touched = nil
	}
	all, set := r.decideAll(states), r.set
	if touched == nil { // it has none of them
		set = r.add
	}
	if r.soon != nil && r.soon.done == nil && touched == nil {
		r.soon.beginHashing(all)
	} else {
		r.soon = nil
	}
	for i := range all {
		set(&all[i], touched)
	}
	return r.settleAll(touched)
}

// settleAll decides between Services after changes, and returns the frontends that have
// changed. touched are those that may have, with their routes before; nil: there were none.
func (r *Router) settleAll(touched map[Frontend]*Route) []RouteChange {
	r.settleClaims(touched)
	out := r.routeChanges(touched)
	r.refreshResults(out)
	return out
}

// settleClaims decides between Services that share a budget, or ask for ranges that overlap, or
// for addresses of the node.
func (r *Router) settleClaims(touched map[Frontend]*Route) {
	r.settleBudgets(touched)
	r.settleRanges(touched)
	r.settleOverlaps(touched)
}

func (r *frontends) routeChanges(touched map[Frontend]*Route) []RouteChange {
	if touched == nil {
		return r.allAdded()
	}
	out := make([]RouteChange, 0, len(touched))
	for f, old := range touched {
		if now := r.winnerOf(f); old != nil || now != nil {
			out = append(out, RouteChange{f, old, now})
		}
	}
	return out
}

func (r *frontends) allAdded() []RouteChange {
	out := make([]RouteChange, 0, len(r.winners)+len(r.echoes.winners))
	for now := range r.Each {
		out = append(out, RouteChange{now.Frontend, nil, now})
	}
	for a, now := range r.echoes.winners {
		out = append(out, RouteChange{Echo(a), nil, now})
	}
	return out
}

// set sets the state of a Service. It adds the previous routes to touched.
func (r *Router) set(d *decided, touched map[Frontend]*Route) {
	r.withdrawService(d.name, touched)
	r.add(d, touched)
}

// add is like set for a Service that the router does not have.
func (r *Router) add(d *decided, touched map[Frontend]*Route) {
	if d.state.Service != nil {
		s := r.addService(d)
		for i := range s.routes {
			r.noteRoute(s.routes[i].Frontend, touched)
			r.claimFrontend(&s.routes[i])
		}
		r.countEchoes(s, 1, touched)
	}
	r.askBudgets(d.name, d.state.Service)
}

// Node returns this node as the source knows it, or with its name alone.
func (r *frontends) Node() *Node { return r.base.node }

// NodePortAddresses returns the addresses that serve NodePorts with the unspecified
// address, sorted; none if NodePorts have other addresses. The result must not be
// changed.
func (r *frontends) NodePortAddresses() []netip.Addr {
	if !r.base.locality.Wildcards {
		return nil
	}
	return r.base.locality.NodePortAddresses
}

// ServiceCIDRs returns the ranges in which unused addresses are dropped, sorted. The result
// must not be changed.
func (r *frontends) ServiceCIDRs() []netip.Prefix { return r.base.serviceCIDRs }

// Each calls yield with the route of each frontend, in no order, until that returns false.
func (r *frontends) Each(yield func(*Route) bool) {
	for f, route := range r.winners {
		if _, yields := r.yielding[f]; !yields && !yield(route) {
			return
		}
	}
}

func (r *Router) Len() (services, frontends int) {
	return len(r.services), len(r.winners) - len(r.yielding)
}

// HasRanges reports whether a Service asks for ranges of ports, so that the addresses of
// the node matter.
func (r *frontends) HasRanges() bool { return len(r.ranges.asking) > 0 }

func (r *Router) addService(d *decided) *routed {
	s := &routed{d.state, d.routes}
	r.services[d.name] = s
	if len(d.notices) > 0 {
		r.noticed[d.name] = d.notices
	}
	if len(d.notices)+len(d.state.Service.Extra().Ranges) > 0 {
		r.reports.markStale(d.name)
	}
	if d.health != nil {
		r.health[d.name], r.staleHealth = *d.health, true
	}
	r.count(s, 1)
	r.ranges.countService(d.state.Service, true)
	return s
}

// claimFrontend adds a frontend of a Service, and returns the route that is not served because of that, if it
// is known already.
func (r *frontends) claimFrontend(route *Route) (loser *Route) {
	if loser = r.join(route); loser != nil {
		r.reports.markStale(loser.Service.Name)
	}
	r.recordOverlap(route)
	return loser
}

func (r *Router) withdrawService(name ServiceName, touched map[Frontend]*Route) {
	s, ok := r.services[name]
	if !ok {
		return
	}
	delete(r.services, name)
	if _, ok := r.health[name]; ok {
		delete(r.health, name)
		r.staleHealth = true
	}
	delete(r.noticed, name)
	r.reports.markNoticed(name)
	r.count(s, -1)
	r.ranges.countService(s.state.Service, false)
	for i := range s.routes {
		route := &s.routes[i]
		r.noteRoute(route.Frontend, touched)
		if route.Frontend.IsRange() {
			r.leaveRange(route)
		} else {
			r.contests.removeClaim(route.Frontend, route)
		}
		r.recordOverlap(route)
	}
	r.countEchoes(s, -1, touched)
}

func (r *frontends) noteRoute(f Frontend, touched map[Frontend]*Route) {
	if touched == nil {
		return
	}
	if _, ok := touched[f]; !ok {
		touched[f] = r.winnerOf(f)
	}
}

// join adds a claim, and returns the one that is not served because of that, if it is known
// already.
func (r *frontends) join(route *Route) (loser *Route) {
	if route.Frontend.IsRange() {
		r.joinRange(route)
		return nil
	}
	return r.contests.join(route.Frontend, route)
}

// count adds a Service to the sums n times; n is 1 or -1.
func (r *Router) count(s *routed, n int) {
	before := words.Among(len(r.services)-n, r.balances)
	if s.state.Service.Balance {
		r.balances += n
	}
	r.reports.stale = r.reports.stale || before != r.Words() // a notice has them
	namespace := s.state.Service.Name.Namespace
	if r.namespaces[namespace] += n; r.namespaces[namespace] == 0 {
		delete(r.namespaces, namespace)
	}
	for i := range s.routes {
		w := s.routes[i].withoutLocal()
		if w == (WithoutLocal{}) {
			continue
		}
		f := FamilyOf(s.routes[i].Frontend.Address)
		sum := r.withoutLocal[f]
		sum.Internal += n * w.Internal
		sum.External += n * w.External
		if r.withoutLocal[f] = sum; sum == (WithoutLocal{}) {
			delete(r.withoutLocal, f)
		}
	}
}

func (r *Router) refreshResults(changes []RouteChange) {
	r.refreshReports(changes)
	if r.staleHealth {
		r.healthChecks = slices.SortedFunc(maps.Values(r.health), func(a, b HealthCheck) int { return a.Service.Compare(b.Service) })
	}
	r.staleHealth = false
}

// HealthChecks returns the health checks of all Services, sorted by name. The result
// must not be changed.
func (r *registry) HealthChecks() []HealthCheck { return r.healthChecks }

// Serves returns the route of a frontend: its own, or the route of a NodePort with the
// unspecified address, or of a range that has its port; nil if there is none.
func (r *frontends) Serves(f Frontend) *Route {
	var route *Route
	if !f.IsEcho() { // see [Router.Echo]: no service port is dialled
		route = r.winnerOf(f)
	}
	if route == nil && r.onNode(f.Address) {
		route = r.winners[f.OnNode()]
	}
	if route == nil && !f.IsRange() {
		route = r.servedRange(f)
	}
	return route
}

// Routes returns the routes of all frontends, in their order.
func (r *frontends) Routes() []Route {
	out := make([]Route, 0, len(r.winners))
	for route := range r.Each {
		out = append(out, *route)
	}
	slices.SortFunc(out, func(a, b Route) int { return a.Frontend.Compare(b.Frontend) })
	return out
}

// WithoutLocal returns the numbers of service ports by family (11.8).
func (r *registry) WithoutLocal() map[Family]WithoutLocal { return maps.Clone(r.withoutLocal) }

// Routing returns the complete behaviour of the node.
func (r *Router) Routing() *Routing {
	out := r.Base()
	out.Routes = r.Routes()
	out.Echoes = r.Echoes()
	return out
}

// Base returns the behaviour of the node without its routes, at a cost
// that does not depend on their number.
func (r *Router) Base() *Routing {
	return &Routing{
		NodeName:          r.base.config.NodeName,
		ServiceCIDRs:      r.base.serviceCIDRs,
		Wildcards:         r.base.locality.Wildcards,
		NodePortAddresses: r.NodePortAddresses(),
		Localhost:         r.base.locality.localhost,
		AnswerFrom:        r.base.answerFrom,
		LoadBalancerCIDRs: r.base.loadBalancerCIDRs,
		UnlinkedCIDRs:     r.base.unlinkedCIDRs,
		Detectors:         newDetectors(r.base.node, r.base.config),
		MasqueradeAll:     r.base.config.MasqueradeAll,
		MasqueradeFrom:    r.base.masqueradeFrom,
		Scheduler:         cmp.Or(r.base.config.Scheduler, RoundRobin),
		AffinityCapacity:  cmp.Or(r.base.config.AffinityCapacity, DefaultAffinityCapacity),
		Counters:          r.base.config.Counters,
		EndpointCounters:  r.base.config.EndpointCounters,
		Observe:           r.base.config.Observe,
		HealthChecks:      r.HealthChecks(),
		WithoutLocal:      r.WithoutLocal(),
		Notices:           r.Notices(),
	}
}
