package report

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/served"
)

const (
	// period is the minimum time between two readings, which all readers share.
	period = time.Second
	// rest is the pause after a reading in multiples of its duration: with many
	// Services, readings use at most a tenth of a CPU.
	rest = 10
	// keep is how long the last reading stays in memory without readers.
	keep = time.Minute

	maxProblems = 50
	maxDetails  = 50               // that are kept with a reading
	maxFailing  = 50               // endpoints that are listed
	liveTimeout = 10 * time.Second // for a client that reads slowly
)

// countSource is the part of [Server] that a feed needs.
type countSource interface {
	Connections() (*model.Routing, Connections, error)
	EndpointCounts([]model.Frontend) ([]counters.Endpoint, error)
	Summary(*model.Routing) *api.Status
}

// feed makes the samples of live data. It is safe for concurrent use.
type feed struct {
	config   *Config
	counts   countSource
	history  *history
	started  time.Time
	instance string
	limit    *serve.Answers

	mu   sync.Mutex
	last *table      // nil: none is in memory
	idle *time.Timer // drops last
}

func newFeed(c *Config, from countSource, h *history) *feed {
	f := &feed{config: c, counts: from, history: h, started: time.Now(), instance: rand.Text(), limit: serve.NewAnswers(budget.LiveRequests, liveTimeout)}
	f.idle = time.AfterFunc(keep, f.drop)
	return f
}

// drop frees the memory of the last reading.
func (f *feed) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// table returns the last reading, or makes another one if that is too old.
func (f *feed) table() (*table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle.Reset(keep)
	begin := time.Now()
	if f.last != nil && begin.Sub(f.last.at) < max(period, rest*f.last.cost) {
		return f.last, nil
	}
	routing, connections, err := f.counts.Connections()
	if err != nil {
		return nil, fmt.Errorf("read connections: %w", err)
	}
	read := time.Now()
	t := newTable(routing, connections, f.config.Counted, f.last)
	t.report = f.counts.Summary(routing)
	t.at, t.uptime, t.cost = read, read.Sub(f.started), time.Since(begin)
	f.last = t
	return t, nil
}

// detail returns a Service of a table, or nil. The counters of its endpoints are read
// once for each table.
func (f *feed) detail(t *table, name string) (*api.LiveDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d, ok := t.details[name]; ok {
		return d, nil
	}
	begin := time.Now()
	routes := t.routesOf(name)
	if len(routes) == 0 {
		return nil, nil
	}
	var counts []counters.Endpoint
	if f.config.EndpointsCounted {
		frontends := make([]model.Frontend, len(routes))
		for i := range routes {
			frontends[i] = routes[i].Frontend
		}
		var err error
		if counts, err = f.counts.EndpointCounts(frontends); err != nil {
			return nil, fmt.Errorf("read connections of endpoints: %w", err)
		}
	}
	d := t.detail(routes, counts)
	if f.config.Checks != nil {
		addFailing(d, f.config.Checks, routes[0].Service.Name)
	}
	d.Read = time.Since(f.started).Seconds()
	if len(t.details) < maxDetails {
		t.details[name] = d
	}
	t.cost += time.Since(begin)
	return d, nil
}

func (f *feed) answer(values url.Values) (any, error) {
	q, err := api.ParseLiveQuery(values)
	if err != nil {
		return nil, malformed(err)
	}
	return f.sample(q)
}

func (f *feed) sample(q api.LiveQuery) (*api.Sample, error) {
	t, err := f.table()
	if err != nil {
		return nil, err
	}
	report, now := t.report, time.Now()
	s := &api.Sample{
		Time: OnClock(now, t.at), Uptime: t.uptime.Seconds(), Instance: f.instance,
		Version: report.Version, Node: report.Node, Source: report.Source, Healthy: report.Healthy,
		SourceError: report.SourceError, Warnings: len(report.Warnings),
		Started: report.Started, LastSuccess: report.LastSuccess, PendingSince: report.PendingSince,
		Problems: report.Problems[:min(len(report.Problems), maxProblems)], ProblemCount: len(report.Problems),
		Observe: report.Observe, Totals: t.totals, Words: report.Words, Counted: f.config.Counted, RecentSince: t.since.Seconds(),
	}
	s.Services, s.Matching = t.matching(q.Filter, q.Limit)
	f.history.read(s, now)
	if q.Service != "" && t.routing != nil {
		s.Detail, err = f.detail(t, q.Service)
	}
	return s, err
}

// table is one reading of all Services. Only its cost and its details change once it is made.
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
	details     map[string]*api.LiveDetail // those that were asked for
}

// newTable returns a table of the Services that a node serves. before is an earlier one, or nil.
func newTable(routing *model.Routing, c Connections, counted bool, before *table) *table {
	t := &table{counted: counted, routing: routing, connections: c, details: make(map[string]*api.LiveDetail)}
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

func (t *table) detail(routes []model.Route, counts []counters.Endpoint) *api.LiveDetail {
	i := slices.IndexFunc(t.services, func(s api.LiveService) bool { return s.ServiceName() == routes[0].Service.Name })
	d := &api.LiveDetail{LiveService: t.services[i]}
	for _, p := range byPort(frontendsOf(routes, t.routing.Scheduler, t.connections.Frontends, t.counted)) {
		d.Ports = append(d.Ports, api.LivePort{ServicePort: servicePort(p, routes[0].Service.Balance), EndpointList: liveEndpoints(p, counts)})
	}
	return d
}

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
