package status

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Config holds the dependencies of a [Server].
type Config struct {
	Version string
	Source  string // description of the source
	// SourceState returns why the source cannot be used and since when, or nil, and
	// the warnings about its objects. Nil: the state is unknown.
	SourceState func() (err error, since time.Time, warnings []string)
	// Reads is when the source is read for the first time, if that was postponed.
	Reads   time.Time
	State   func() agent.State
	Routing func() *model.Routing // the agent's routing
	// Machine, if set, returns the problems of the machine on which connections depend.
	Machine func() []Problem
	Counted bool         // the rules count connections
	Kernel  KernelReader // used by this server only
	Log     *slog.Logger
}

// KernelReader is the part of [kernel.Conn] that a server needs.
type KernelReader interface {
	AffinityUse() ([]kernel.AffinityUse, error)
	FrontendCounts() ([]kernel.FrontendCount, error)
}

// Server answers "GET /status" in a running daemon. It is safe for concurrent
// use.
type Server struct {
	config    Config
	answering chan struct{} // limits concurrent answers

	mu   sync.Mutex
	last *SyncReport
	good bool // a sync has succeeded

	reading sync.Mutex // guards the kernel connection and counts
	counts  counts
}

const (
	maxAnswers   = 2                // concurrent ones: each holds the whole report in memory
	writeTimeout = 30 * time.Second // for a client that reads slowly
)

// New returns a server that has seen no sync yet.
func New(c Config) *Server {
	return &Server{config: c, answering: make(chan struct{}, maxAnswers), counts: newCounts()}
}

// Observe records a sync of the agent.
func (s *Server) Observe(o *agent.Sync) {
	last := &SyncReport{Cause: o.Cause.String(), Started: o.Started, Seconds: o.Duration.Seconds()}
	if o.Plan != nil {
		last.Added, last.Changed, last.Deleted = o.Plan.Count(plan.Add), o.Plan.Count(plan.Replace), o.Plan.Count(plan.Delete)
	}
	if o.Err != nil {
		last.Error = o.Err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
	s.good = s.good || o.Err == nil
}

// observed returns the last sync and, after the first successful one, the agent's
// routing.
func (s *Server) observed() (*SyncReport, *model.Routing) {
	s.mu.Lock()
	last, good := s.last, s.good
	s.mu.Unlock()
	if !good {
		return last, nil
	}
	return last, s.config.Routing()
}

// ServeHTTP answers with a [Report] in JSON.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.answering <- struct{}{}:
		defer func() { <-s.answering }()
	default:
		http.Error(w, "too many requests: try again", http.StatusTooManyRequests)
		return
	}
	// Only writers in tests lack deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	report, err := s.report()
	if err != nil {
		s.config.Log.Error("status is unknown", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = report.WriteJSON(w) // fails if the client is gone
}

func (s *Server) report() (*Report, error) {
	last, routing := s.observed()
	state, now := s.config.State(), time.Now()
	r := &Report{
		From: Daemon, Healthy: last != nil && last.Error == "",
		Version: s.config.Version, Source: s.config.Source, Started: onClock(now, state.Started),
		LastSuccess: onClock(now, state.LastSync), PendingSince: onClock(now, state.Pending), Counted: s.config.Counted,
	}
	r.addSource(now, s.config.SourceState)
	if now.Before(s.config.Reads) {
		r.PostponedUntil = onClock(now, s.config.Reads)
	}
	if last != nil {
		sync := *last
		sync.Started = onClock(now, sync.Started)
		r.LastSync = &sync
	}
	if s.config.Machine != nil {
		r.Problems = s.config.Machine()
	}
	if routing == nil {
		return r, nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := errors.Join(r.addAffinity(s.config.Kernel), s.count(routing)); err != nil {
		return nil, err
	}
	r.addRouting(routing, s.counts.frontends)
	return r, nil
}

func (r *Report) addSource(now time.Time, state func() (error, time.Time, []string)) {
	if state == nil {
		return
	}
	err, since, warnings := state()
	r.Warnings = warnings
	if err != nil {
		r.Healthy, r.SourceError = false, &SourceError{err.Error(), onClock(now, since)}
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

func (r *Report) addRouting(routing *model.Routing, connections map[model.Frontend]uint64) {
	r.Node = routing.NodeName
	r.NodePortAddresses = routing.NodePortAddresses
	for _, h := range routing.HealthChecks {
		endpoints := make(map[string]int)
		for f, n := range h.Endpoints {
			endpoints[f.String()] = n
		}
		r.HealthChecks = append(r.HealthChecks, HealthCheck{h.Service.Namespace, h.Service.Name, h.Port, endpoints})
	}
	for _, n := range routing.Notices {
		r.Problems = append(r.Problems, Problem{n.Object.String(), string(n.Reason), n.Message})
	}
	all := make([]frontend, len(routing.Routes))
	endpoints := make(map[answer]bool)
	for i := range routing.Routes {
		route := &routing.Routes[i]
		f := &all[i]
		*f = frontend{Frontend: route.Frontend, port: route.PortName(), kind: route.Kind, inside: decisionOf(route.Frontend, route.Inside(), endpoints)}
		if route.Local() && f.inside.Verdict != model.Reject.String() {
			outside := decisionOf(route.Frontend, route.Outside(), endpoints)
			f.outside = &outside
		}
		if r.Counted {
			n := connections[route.Frontend]
			f.connections = &n
		}
	}
	r.fill(all, endpoints)
}

// decisionOf returns a decision for a report, and adds its endpoints to endpoints.
func decisionOf(f model.Frontend, d model.Decision, endpoints map[answer]bool) Decision {
	for _, e := range d.Endpoints {
		endpoints[answer{f.Protocol, e.Address()}] = true
	}
	return Decision{d.Verdict.String(), len(d.Endpoints)}
}
