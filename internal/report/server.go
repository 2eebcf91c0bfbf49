package report

import (
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/served"
)

// Config holds the dependencies of a [Server].
type Config struct {
	Version string
	Source  string // description of the source
	// SourceState returns why the source cannot be used and since when, or nil, and
	// the warnings about its objects. Nil: the state is unknown.
	SourceState func() (since time.Time, warnings []string, err error)
	// Seen returns the newest resourceVersions of the API server that were seen; nil: there is
	// no API server.
	Seen func() map[string]string
	// Reads is when the source is read for the first time, if that was postponed.
	Reads   time.Time
	State   func() agent.State
	Routing func() *model.Routing // the agent's routing
	// Checks, if set, has the results of the health checks of endpoints.
	Checks Checks
	// Problems, if set, returns problems of the machine on which connections depend, and
	// Notes what else operators should know.
	Problems func() []model.Notice
	Notes    func() []model.Notice
	// NameProblems returns what is wrong with the names of servers of a Service; nil: none has names.
	NameProblems func(model.ServiceName, time.Time) []string
	// RelayFailure returns why connections of a family are not relayed; empty: they are. Nil: nothing
	// is relayed.
	RelayFailure func(model.Family) string
	// RelayFull returns the limits of relayed connections to a Service that are reached. It is set with
	// RelayFailure.
	RelayFull func(model.ServiceName) []string
	// Announced returns the addresses of Balances with announce; nil: there are none.
	Announced func() []api.AnnouncedAddress
	// Words are the words for Services; nil: the ones of Kubernetes.
	Words Words
	// View and Names are the methods of the agent. Bindings reads the clients that session
	// affinity binds, up to a limit.
	View  func(model.ServiceName) *model.View
	Names func() []model.ServiceName
	// Named returns the Services of a name in a namespace, or in all if that is empty; nil: Names
	// are searched.
	Named    func(namespace, name string) []model.ServiceName
	Bindings func(model.Family, int) ([]*nft.Set, error)
	// Drains has the drained endpoints; nil: there are none.
	Drains *drain.Follower
	// Changes has the changes of servers that no file has; nil: there are none.
	Changes *drain.Store
	// Basis returns the facts, besides the objects, that decide over the rules.
	Basis func() *api.Basis
	// Compare returns what would make the kernel hold the rules for a routing.
	Compare func(*model.Routing) (*plan.Plan, error)
	// Observe is the level of what the rules log, and Traffic reads it; nil: nothing is read.
	// Node is the name of this node.
	Observe model.ObserveLevel
	Traffic Traffic
	Node    string
	// Sampled returns the outcomes of the sampled connections of a minute to an endpoint of a
	// service port; nil: there are no samples.
	Sampled func(model.PortName, netip.AddrPort, time.Time) [conntrack.Outcomes]int
	// Dropped returns how many of the sampled connections of a minute to a service port were lost on
	// this machine, and the number of all; nil as above.
	Dropped func(model.PortName, time.Time) (dropped, all int)
	Counted bool // the rules count connections
	// EndpointsCounted reports that they count those to each endpoint as well.
	EndpointsCounted bool
	Kernel           KernelReader // used by this server only
	// Rules reads the tables of the kernel, also for this server only; nil: no page lists them.
	Rules func() (*nft.Ruleset, uint32, error)
	Log   *slog.Logger
}

// KernelReader is the part of [counters.Reader] that a server needs.
type KernelReader interface {
	AffinityUse() ([]kernel.AffinityUse, error)
	FrontendCounts() ([]counters.Frontend, error)
	EndpointCounts([]model.Frontend) ([]counters.Endpoint, error)
	LimitDrops() ([]counters.Limit, error)
	Unlimited() ([]counters.Limit, error)
	Refusals() ([]counters.Refusal, error)
}

// Server answers with the documents of the api in a running daemon. It is safe for concurrent
// use.
type Server struct {
	config Config
	pages  []serve.Page

	history  history
	live     *feed
	comparer *comparer

	counterCache
}

const writeTimeout = 30 * time.Second // for a client that reads slowly

// New returns a server that has seen no sync yet.
func New(c Config) *Server {
	s := &Server{config: c}
	s.counterCache = counterCache{
		kernel: c.Kernel, counted: c.Counted, countsRefusals: c.Observe >= model.ObserveRefusals, log: c.Log, counts: newCounts(), carried: newCarried(),
		routing: func() *model.Routing { _, routing := s.observed(); return routing },
	}
	s.live = newFeed(&s.config, s, &s.history)
	s.comparer = &comparer{config: &s.config, every: api.CompareEvery}
	s.pages = s.newPages()
	return s
}

// Observe records a sync of the agent.
func (s *Server) Observe(o *agent.Sync) {
	s.carried.synced()
	s.history.observe(o)
	if o.Err == nil && !s.begun && s.kernel != nil {
		s.begun = s.beginLimits()
	}
}

// observed returns the last sync and, after the first successful one, the agent's
// routing.
func (s *Server) observed() (*api.Sync, *model.Routing) {
	last, good := s.history.state()
	if !good {
		return last, nil
	}
	return last, s.config.Routing()
}

// answerStatus answers with an [api.Status].
func (s *Server) answerStatus(query url.Values) (any, error) {
	filter, err := api.ParseFilter(query)
	if err != nil {
		return nil, queryError{err}
	}
	return s.report(filter)
}

func (s *Server) report(filter *api.Filter) (*report, error) {
	last, routing := s.observed()
	now := time.Now()
	r := s.head(now, last)
	if routing == nil {
		r.addProblems(now)
		return r, nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	refused, err := s.refused()
	if err := errors.Join(err, r.addAffinity(s.config.Kernel), s.count(routing), s.addFullLimits(r, now)); err != nil {
		return nil, err
	}
	r.Refused = refused
	r.addRouting(routing, s.counts.frontends, filter)
	r.addStarting(routing.Routes, now, filter)
	r.addProblems(now)
	return r, nil
}

// Summary returns the report without the lists of a routing, except its notices,
// at a low cost. routing may be nil.
func (s *Server) Summary(routing *model.Routing) *api.Status {
	last, _ := s.history.state()
	now := time.Now()
	r := s.head(now, last)
	if routing != nil {
		r.addNotices(routing)
	}
	r.addProblems(now)
	return &r.Status
}

// head returns the part of the report that does not depend on the Services.
func (s *Server) head(now time.Time, last *api.Sync) *report {
	state := s.config.State()
	r := &report{of: s.config.Words, Status: api.Status{
		Words: s.words(), From: api.FromDaemon, Time: now, Healthy: last != nil && last.Error == "",
		Version: s.config.Version, Source: s.config.Source, Started: onClock(now, state.Started),
		LastSuccess: onClock(now, state.LastSync), PendingSince: onClock(now, state.Pending), Counted: s.config.Counted,
	}}
	r.addSource(now, s.config.SourceState)
	if s.config.Seen != nil {
		r.Seen = s.config.Seen()
	}
	if now.Before(s.config.Reads) {
		r.PostponedUntil = onClock(now, s.config.Reads)
	}
	if last != nil {
		sync := *last
		sync.Started = onClock(now, sync.Started)
		r.LastSync = &sync
	}
	r.Problems, r.Notes = s.drainProblems(), s.drainNotes()
	s.addChanges(r)
	if s.config.Problems != nil {
		r.Problems = append(r.Problems, api.ProblemsOf(s.config.Problems())...)
	}
	if s.config.Announced != nil {
		r.Announced = s.config.Announced()
	}
	if s.config.Notes != nil {
		r.Notes = append(r.Notes, api.ProblemsOf(s.config.Notes())...)
	}
	if s.config.Checks != nil {
		r.addChecks(now, s.config.Checks, s.config.View)
	}
	r.nameBalances(s.config.Words)
	r.RulesChanged = s.history.interference(now)
	r.Observe = s.observing(now)
	return r
}

func (r *report) addSource(now time.Time, state func() (time.Time, []string, error)) {
	if state == nil {
		return
	}
	since, warnings, err := state()
	r.Warnings = warnings
	if err != nil {
		r.Healthy, r.SourceError = false, &api.SourceError{Message: err.Error(), Since: onClock(now, since)}
		if all := (interface{ Lines() []string })(nil); errors.As(err, &all) {
			r.mistakes = all.Lines()
		}
	}
}

// onClock returns a time as the clock, as it is set now, would have shown it: readers
// compare it with that clock. The zero time stays.
func onClock(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-now.Sub(t))
}

// addNotices adds the node and the requests that it cannot serve.
func (r *report) addNotices(routing *model.Routing) {
	r.Node = routing.NodeName
	r.Problems = append(r.Problems, api.ProblemsOf(routing.Notices)...)
}

func (r *report) addRouting(routing *model.Routing, connections map[model.FrontendID]uint64, filter *api.Filter) {
	r.NodePortAddresses, r.Localhost = routing.NodePortAddresses, routing.Localhost
	for _, h := range routing.HealthChecks {
		if !filter.Matches(h.Service) {
			continue
		}
		endpoints := make(map[string]int)
		for f, n := range h.Endpoints {
			endpoints[f.String()] = n
		}
		r.HealthChecks = append(r.HealthChecks, api.ServiceHealth{Namespace: h.Service.Namespace, Name: h.Service.Name, Port: h.Port, Endpoints: endpoints})
	}
	r.addNotices(routing)
	r.selectProblems(filter)
	r.fill(frontendsOf(routing.Routes, routing.Scheduler, connections, r.Counted), filter)
}

// frontendsOf returns the frontends of some routes, with their connections if these are
// counted. scheduler is the one of the node.
func frontendsOf(routes []model.Route, scheduler model.Scheduler, connections map[model.FrontendID]uint64, counted bool) []frontend {
	all := make([]frontend, len(routes))
	for i := range routes {
		route := &routes[i]
		all[i] = frontend{Frontend: served.Of(route, scheduler), route: route}
		if counted && !all[i].OnLocalhost() { // counted behind the listener
			n := connections[route.Frontend.ID()]
			all[i].connections = &n
		}
	}
	return all
}
