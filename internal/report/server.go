package report

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Config holds the dependencies of a [Server].
type Config struct {
	Version string
	Source  string // description of the source
	Node    string // name of this node
	// Reads is when the source is read for the first time, if that was postponed.
	Reads   time.Time
	Agent   Agent
	Facts   Facts
	Checks  Checks       // results of the health checks of endpoints; nil: there are none
	Kernel  KernelReader // used by this server only
	Planner Planner
	Observe model.ObserveLevel // of what the rules log
	Counted bool               // the rules count connections
	// EndpointsCounted reports that they count those to each endpoint as well.
	EndpointsCounted bool
	Log              *slog.Logger
}

// Planner compares the kernel with what is wanted.
type Planner interface {
	// Compare returns what would make the kernel hold the rules for a routing.
	Compare(*model.Routing) (*plan.Plan, error)
}

// KernelReader is the part of [counters.Reader] that a server needs.
type KernelReader interface {
	AffinityUse() ([]kernel.AffinityUse, error)
	FrontendCounts() ([]counters.Frontend, error)
	EndpointCounts([]model.Frontend) ([]counters.Endpoint, error)
	LimitDrops() ([]counters.Limit, error)
	Unlimited() ([]counters.Limit, error)
	Refusals() ([]counters.Refusal, error)
	// Bindings reads the clients that session affinity binds, up to a limit.
	Bindings(model.Family, int) ([]*nft.Set, error)
	// Read reads all rules.
	Read() (*nft.Ruleset, uint32, error)
}

// Server answers with the documents of the api in a running daemon. It is safe for concurrent
// use.
type Server struct {
	config Config
	pages  []serve.Page

	live     *feed
	comparer *comparer

	counterCache
}

const writeTimeout = 30 * time.Second // for a client that reads slowly

// New returns a server that has seen no sync yet.
func New(c Config) *Server {
	s := &Server{config: c}
	s.counterCache = counterCache{
		agent: c.Agent, kernel: c.Kernel, counted: c.Counted, countsRefusals: c.Observe >= model.ObserveRefusals, log: c.Log, counts: newCounts(), carried: newCarried(),
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

func (s *Server) answerStatus(query url.Values) (any, error) {
	filter, err := api.ParseFilter(query)
	if err != nil {
		return nil, malformed(err)
	}
	return s.report(filter)
}

func (s *Server) report(filter *api.Filter) (*report, error) {
	last, _ := s.history.state()
	routing := s.routing()
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
	state := s.config.Agent.State()
	r := &report{origins: s.config.Facts, Status: api.Status{
		Words: s.config.Facts.Words(), From: api.FromDaemon, Healthy: last != nil && last.Error == "",
		Daemon: api.Daemon{Time: now, Version: s.config.Version, Source: s.config.Source, Started: OnClock(now, state.Started)},
		Rules:  api.Rules{LastSuccess: OnClock(now, state.LastSync), PendingSince: OnClock(now, state.Pending), Counted: s.config.Counted},
	}}
	r.addSource(now, s.config.Facts.SourceState())
	if now.Before(s.config.Reads) {
		r.PostponedUntil = OnClock(now, s.config.Reads)
	}
	if last != nil {
		sync := *last
		sync.Started = OnClock(now, sync.Started)
		r.LastSync = &sync
	}
	r.Problems, r.Notes = slices.Clone(s.config.Facts.Problems()), slices.Clone(s.config.Facts.Notes()) // sorted below
	if s.config.Checks != nil {
		r.addChecks(now, s.config.Checks, s.config.Agent.View)
	}
	r.nameBalances()
	r.RulesChanged = s.history.interference(now)
	s.config.Facts.AddToStatus(&r.Status, now)
	return r
}

func (r *report) addSource(now time.Time, s SourceState) {
	r.Warnings, r.Seen = s.Warnings, s.Seen
	if err := s.Err; err != nil {
		r.Healthy, r.SourceError = false, &api.SourceError{Message: err.Error(), Since: OnClock(now, s.Since)}
		if all := (interface{ Lines() []string })(nil); errors.As(err, &all) {
			r.mistakes = all.Lines()
		}
	}
}

// OnClock returns a time as the clock, as it is set now, would have shown it: readers
// compare it with that clock. The zero time stays.
func OnClock(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-now.Sub(t))
}

func (r *report) addNotices(routing *model.Routing) {
	r.Node = routing.NodeName
	r.Problems = append(r.Problems, routing.Notices...)
}

func (r *report) addRouting(routing *model.Routing, connections map[model.FrontendID]uint64, filter *api.Filter) {
	r.NodePortAddresses, r.Localhost = routing.NodePortAddresses, routing.Localhost
	for _, h := range routing.HealthChecks {
		if filter.Matches(h.Service) {
			r.HealthChecks = append(r.HealthChecks, api.ServiceHealth{Namespace: h.Service.Namespace, Name: h.Service.Name, Port: h.Port, Endpoints: byFamily(h.Endpoints)})
		}
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

// Agent is the part of [agent.Agent] that a server needs.
type Agent interface {
	State() agent.State
	Routing() *model.Routing
	View(model.ServiceName) *model.View // nil: there is no such Service
	Names() []model.ServiceName
	// Named returns the Services of a name in a namespace, or in all if that is empty.
	Named(namespace, name string) []model.ServiceName
}

// Words has the words for Services.
type Words interface {
	// IsBalance reports whether a Service comes from a Balance.
	IsBalance(model.ServiceName) bool
	// Words are the words for all Services together.
	Words() words.Vocabulary
}

// Facts are what the rest of a daemon knows. Features fill the documents with theirs.
type Facts interface {
	Words
	SourceState() SourceState
	// Problems are the ones of the machine and of features, and Notes what else operators should know.
	Problems() []model.Notice
	Notes() []model.Notice
	AddToStatus(*api.Status, time.Time)
	AddToDescription(*api.Description, *model.View, time.Time)
	// Drains answers a question about drained endpoints. The error is a mistake in it.
	Drains(url.Values) (*api.Drains, error)
	Observed(context.Context, *api.ObserveQuery) *api.Observed
	// Basis has the facts, besides the objects, that decide over the rules.
	Basis() *api.Basis
}

// SourceState is the state of the source of objects.
type SourceState struct {
	Err      error // why it cannot be used, since then; nil: it can
	Since    time.Time
	Warnings []string // about its objects
	// Seen are the newest resourceVersions of the API server that were seen; nil: there is no API server.
	Seen map[string]string
}
