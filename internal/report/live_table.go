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

// newTable returns a table of what a node serves. before is an earlier one, or nil.
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
		t.keep(before)
	} else {
		t.describe(routing.Routes)
	}
	t.count(routing.Routes, before)
	slices.SortFunc(t.services, compareServices)
	return t
}

// user identifies an endpoint: in its Service, and without one in the totals.
type user struct {
	service  *model.Service
	protocol model.Protocol
	address  netip.AddrPort
}

// used is a list of endpoints that several routes share.
type used struct {
	choice *model.Choice
	policy model.Policy
}

// sameRoutes reports whether two readings have the same routes: decisions are immutable.
func sameRoutes(a, b []model.Route) bool {
	return slices.EqualFunc(a, b, func(a, b model.Route) bool {
		return a.Frontend == b.Frontend && a.Service == b.Service && a.Choice == b.Choice
	})
}

// keep takes over what depends on the routes only.
func (t *table) keep(before *table) {
	connections := t.totals.Connections
	t.totals = before.totals
	t.totals.Connections = connections
	t.services = make([]api.LiveService, len(before.services))
	for i, s := range before.services {
		t.services[i] = t.newService(s.ServiceName())
		t.services[i].Frontends, t.services[i].Endpoints, t.services[i].Unserved = s.Frontends, s.Endpoints, s.Unserved
	}
}

// index returns the places of the Services.
func (t *table) index() map[model.ServiceName]int {
	out := make(map[model.ServiceName]int, len(t.services))
	for i := range t.services {
		out[t.services[i].ServiceName()] = i
	}
	return out
}

// describe adds the Services of all routes.
func (t *table) describe(routes []model.Route) {
	index := make(map[model.ServiceName]int)
	lists, endpoints := make(map[used]bool), make(map[user]bool)
	for i := range routes {
		r := &routes[i]
		at, ok := index[r.Service.Name]
		if !ok {
			at = len(t.services)
			index[r.Service.Name] = at
			t.services = append(t.services, t.newService(r.Service.Name))
		}
		s := &t.services[at]
		s.Frontends++
		if r.Inside().Verdict != model.Forward || r.Outside().Verdict != model.Forward {
			s.Unserved++
			t.totals.Unserved++
		}
		for _, p := range []model.Policy{r.InsidePolicy(), outsidePolicy(r)} {
			if l := (used{r.Choice, p}); !lists[l] {
				lists[l] = true
				t.addEndpoints(s, r, p, endpoints)
			}
		}
	}
	t.totals.Services, t.totals.Frontends = len(t.services), len(routes)
}

// count adds the connections to the frontends of all Services.
func (t *table) count(routes []model.Route, before *table) {
	if !t.counted {
		return
	}
	index := t.index()
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

func outsidePolicy(r *model.Route) model.Policy {
	if r.Local() {
		return model.PolicyLocal
	}
	return r.InsidePolicy()
}

func (t *table) newService(n model.ServiceName) api.LiveService {
	s := api.LiveService{Namespace: n.Namespace, Name: n.Name}
	if t.counted {
		s.Connections = new(uint64)
		if t.since > 0 {
			s.Recent = new(uint64)
		}
	}
	return s
}

// addEndpoints counts the endpoints of a route that are not in seen yet.
func (t *table) addEndpoints(s *api.LiveService, r *model.Route, p model.Policy, seen map[user]bool) {
	for _, e := range r.Choice.Decide(p).Endpoints {
		u := user{r.Service, r.Frontend.Protocol, e.Address()}
		if !seen[u] {
			seen[u] = true
			s.Endpoints++
		}
		u.service = nil
		if !seen[u] {
			seen[u] = true
			t.totals.Endpoints++
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

// detail returns the Service of some routes. counts are those of its endpoints.
func (t *table) detail(routes []model.Route, counts []counters.Endpoint) *api.LiveDetail {
	i := slices.IndexFunc(t.services, func(s api.LiveService) bool { return s.ServiceName() == routes[0].Service.Name })
	d := &api.LiveDetail{LiveService: t.services[i]}
	for _, p := range PortsOf(routes, t.routing.Scheduler, t.connections, t.counted) {
		d.Ports = append(d.Ports, api.LivePort{ServicePort: p, EndpointList: liveEndpoints(routes, p, counts)})
	}
	return d
}

// liveEndpoints returns the endpoints of a service port, sorted by address.
func liveEndpoints(routes []model.Route, p api.ServicePort, counts []counters.Endpoint) (out []api.LiveEndpoint) {
	found, local := make(map[netip.AddrPort]bool), make(map[netip.AddrPort]bool)
	frontends := make(map[model.Frontend]bool)
	for i := range routes {
		r := &routes[i]
		if r.Port.Name != p.Port || r.Port.Protocol.String() != p.Protocol {
			continue
		}
		frontends[r.Frontend] = true
		for _, e := range slices.Concat(r.Inside().Endpoints, r.Outside().Endpoints) {
			found[e.Address()] = true
		}
		for _, e := range r.Choice.Local {
			local[e.Address()] = true
		}
	}
	connections := make(map[netip.AddrPort]uint64)
	for _, c := range counts {
		if frontends[c.Frontend] {
			connections[c.Endpoint] += c.Connections
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(found), netip.AddrPort.Compare) {
		e := api.LiveEndpoint{Address: model.EndpointText(a), Local: local[a]}
		if n, ok := connections[a]; ok {
			e.Connections = &n
		}
		out = append(out, e)
	}
	return out
}
