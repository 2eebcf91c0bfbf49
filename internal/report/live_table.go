package report

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// table is one reading of all Services. Only its cost changes once it is made.
type table struct {
	at     time.Time
	uptime time.Duration
	cost   time.Duration // of making it, and of the details that were read since
	since  time.Duration // uptime of the table before, to which Recent refers; zero: none

	report      *api.Status // without what follows from the routing
	counted     bool
	routing     *model.Routing // nil before the first successful sync
	connections Connections
	services    []api.LiveService // the busiest ones first
	totals      api.Totals
}

// newTable returns a table of the Services that a node serves. before is an earlier one, or nil.
func newTable(routing *model.Routing, c Connections, counted bool, before *table) *table {
	t := &table{counted: counted, routing: routing, connections: c}
	t.totals.Connections = c.Total
	if routing == nil {
		return t
	}
	if before != nil && before.routing != nil {
		t.since = before.uptime
	} else {
		before = &table{}
	}
	if before.routing != nil && sameRoutes(before.routing.Routes, routing.Routes) {
		t.totals, t.services = before.totals, slices.Clone(before.services)
	} else {
		all := newSums()
		for i := range routing.Routes {
			all.add(served.Of(&routing.Routes[i], routing.Scheduler), routing.Routes[i].Service.Balance)
		}
		for s := range startersOf(routing.Routes, time.Now()) {
			all.services[all.index[s.service.Name]].StartingCount++
			all.totals.Starting++
		}
		t.totals, t.services = all.totals, all.services
	}
	t.totals.Connections = c.Total
	t.count(routing.Routes, before)
	slices.SortFunc(t.services, compareServices)
	return t
}

// sameRoutes reports whether two readings have the same routes: decisions are immutable.
func sameRoutes(a, b []model.Route) bool {
	return slices.EqualFunc(a, b, func(a, b model.Route) bool {
		return a.Frontend == b.Frontend && a.Service == b.Service && a.Choice == b.Choice
	})
}

// count adds the connections to the frontends of all Services.
func (t *table) count(routes []model.Route, before *table) {
	if !t.counted {
		return
	}
	index := make(map[model.ServiceName]int, len(t.services))
	for i := range t.services {
		s := &t.services[i]
		index[s.ServiceName()] = i
		s.Connections, s.Recent = new(uint64), nil
		if t.since > 0 {
			s.Recent = new(uint64)
		}
	}
	for i := range routes {
		r := &routes[i]
		s := &t.services[index[r.Service.Name]]
		id := r.Frontend.ID()
		n, old := t.connections.Frontends[id], before.connections.Frontends[id]
		*s.Connections += n
		if s.Recent != nil && old <= n { // else the frontend was deleted and added again
			*s.Recent += n - old
		}
	}
}

// compareServices orders by recent connections, then by all connections, both
// descending, then by name.
func compareServices(a, b api.LiveService) int {
	number := func(p *uint64) uint64 {
		if p == nil {
			return 0
		}
		return *p
	}
	return cmp.Or(
		cmp.Compare(number(b.Recent), number(a.Recent)),
		cmp.Compare(number(b.Connections), number(a.Connections)),
		a.ServiceName().Compare(b.ServiceName()),
	)
}

// matching returns the Services whose name contains a text, in either case, at most
// limit, and the number of all of them.
func (t *table) matching(filter string, limit int) (found []api.LiveService, all int) {
	filter = strings.ToLower(filter)
	for i := range t.services {
		s := &t.services[i]
		if filter != "" && !strings.Contains(strings.ToLower(s.ServiceName().String()), filter) {
			continue
		}
		if all++; len(found) < limit {
			found = append(found, *s)
		}
	}
	return found, all
}

// routesOf returns the routes of a Service, by "namespace/name".
func (t *table) routesOf(name string) (out []model.Route) {
	for _, r := range t.routing.Routes {
		if r.Service.Name.String() == name {
			out = append(out, r)
		}
	}
	return out
}

// detail returns the Service of some routes. counts are the counts of its endpoints.
func (t *table) detail(routes []model.Route, counts []counters.Endpoint) *api.LiveDetail {
	i := slices.IndexFunc(t.services, func(s api.LiveService) bool { return s.ServiceName() == routes[0].Service.Name })
	d := &api.LiveDetail{LiveService: t.services[i]}
	for _, p := range byPort(frontendsOf(routes, t.routing.Scheduler, t.connections.Frontends, t.counted)) {
		d.Ports = append(d.Ports, api.LivePort{ServicePort: servicePort(p, routes[0].Service.Balance), EndpointList: liveEndpoints(p, counts)})
	}
	return d
}

// liveEndpoints returns the endpoints of a service port, sorted by address.
func liveEndpoints(port []frontend, counts []counters.Endpoint) (out []api.LiveEndpoint) {
	found := make(map[netip.AddrPort]*api.LiveEndpoint)
	frontends := make(map[model.Frontend]bool)
	for i := range port {
		f := &port[i]
		frontends[f.Frontend.Frontend] = true
		for _, e := range slices.Concat(f.Inside.Endpoints, f.Outside.Endpoints) {
			if found[e.Address] == nil {
				found[e.Address] = &api.LiveEndpoint{Address: model.EndpointText(e.Address)}
			}
		}
	}
	for i := range port {
		for _, e := range port[i].route.Choice.Local {
			if d := found[e.Address()]; d != nil {
				d.Local = true
			}
		}
	}
	for i := range port {
		for a, s := range starting(port[i].route, time.Now()) {
			if found[a] != nil {
				found[a].Starting = s
			}
		}
	}
	for _, c := range counts {
		if d := found[c.Endpoint]; d != nil && frontends[c.Frontend] {
			if d.Connections == nil {
				d.Connections = new(uint64)
			}
			*d.Connections += c.Connections
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(found), netip.AddrPort.Compare) {
		out = append(out, *found[a])
	}
	return out
}
