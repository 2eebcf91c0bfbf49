package report

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
)

const (
	// period is the minimum time between two readings, which all readers share.
	period = time.Second
	// rest is the pause after a reading in multiples of its duration: with many
	// Services, readings use at most a tenth of a CPU.
	rest = 10
	// keep is how long the last reading stays in memory without readers.
	keep = time.Minute

	defaultLimit = 100  // Services in an answer
	maxLimit     = 1000 // that may be asked for
	maxProblems  = 50
	maxDetails   = 50               // that are kept with a reading
	maxFailing   = 50               // endpoints that are listed
	maxQuery     = 512              // bytes
	liveTimeout  = 10 * time.Second // for a client that reads slowly
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
	// details are those that were asked for since last.
	details map[string]*api.LiveDetail
}

// newFeed returns a feed of a process that starts now.
func newFeed(c *Config, from countSource, h *history) *feed {
	f := &feed{config: c, counts: from, history: h, started: time.Now(), instance: rand.Text(), limit: serve.NewAnswers(budget.LiveRequests, liveTimeout)}
	f.idle = time.AfterFunc(keep, f.drop)
	return f
}

// drop frees the memory of the last reading.
func (f *feed) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.details = nil, nil
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
	f.last, f.details = t, make(map[string]*api.LiveDetail)
	return t, nil
}

// detail returns a Service of a table, or nil. The counters of its endpoints are read
// once for each table.
func (f *feed) detail(t *table, name string) (*api.LiveDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d, ok := f.details[name]; ok && t == f.last {
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
	if t == f.last && len(f.details) < maxDetails {
		f.details[name] = d
	}
	t.cost += time.Since(begin)
	return d, nil
}

// query is a question of a reader.
type query struct {
	limit   int    // most Services
	filter  string // text in the names of Services
	service string // "namespace/name" of the Service in the detail; empty: none
}

func parseQuery(values url.Values) (query, error) {
	q := query{limit: defaultLimit, filter: values.Get("filter"), service: values.Get("service")}
	if text := values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxLimit {
			return q, fmt.Errorf("limit: %q is not a number from 0 to %d", text, maxLimit)
		}
		q.limit = n
	}
	if len(q.filter) > maxQuery || len(q.service) > maxQuery {
		return q, fmt.Errorf("filter and service have at most %d bytes", maxQuery)
	}
	return q, nil
}

// answer answers with an [api.Sample]. The query may have "limit", the most Services, "filter",
// a part of their names, and "service", the name of one that is described in detail.
func (f *feed) answer(values url.Values) (any, error) {
	q, err := parseQuery(values)
	if err != nil {
		return nil, queryError{err}
	}
	return f.sample(q)
}

func (f *feed) sample(q query) (*api.Sample, error) {
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
	s.Services, s.Matching = t.matching(q.filter, q.limit)
	f.history.read(s, now)
	if q.service != "" && t.routing != nil {
		s.Detail, err = f.detail(t, q.service)
	}
	return s, err
}
