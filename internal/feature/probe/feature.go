package probe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

type Kind struct{}

func (Kind) New(n *feature.Node) feature.Feature { return newEngine(n, machine{n}, n.Log) }

// machine makes checks from this machine.
type machine struct{ node *feature.Node }

func (machine) New(c *model.Check, t checker.Target) (checker.Checker, error) {
	return checker.New(c, t)
}

func (m machine) Room() (network, programs int) {
	return descriptors.Checks(len(m.node.Config.Node.Localhost()) > 0)
}

func (e *Engine) Collectors() []prometheus.Collector {
	return []prometheus.Collector{e.metrics.total, e.metrics.transitions, e.metrics.duration, newCollector(e)}
}

// Problems implements [feature.Reporter]: it returns the Services whose passive check learns nothing.
func (e *Engine) Problems(time.Time) (out []model.Notice) {
	if e.node.Config.Node.Observe.Failures() {
		return nil
	}
	for _, name := range e.Passive() {
		out = append(out, model.Notice{Object: name.Object(), Reason: model.NotObserved, Message: "its passive health check learns nothing: start nftproxy with --observe=failures"})
	}
	return out
}

// tell counts endpoints whose health has changed, and reports the ones of Services of an API server as events.
func (e *Engine) tell(all []Transition) {
	acts := feature.Find[interface{ Note(...model.ServiceName) }](e.node.Features)
	for i := range all {
		e.metrics.countTransition(all[i].Healthy)
		if acts != nil {
			acts.Note(all[i].Service)
		}
	}
	if !e.node.Config.Own.HealthChecks {
		return // they are of Services of files
	}
	// A machine that dies may have thousands. The log counts the others.
	for _, t := range all[:min(len(all), budget.HealthEvents)] {
		e.node.Events.EndpointHealth(t.Service, t.Address, t.Healthy, t.Message)
	}
}

type metrics struct {
	total, transitions *prometheus.CounterVec
	duration           *prometheus.HistogramVec
}

func newMetrics() metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return metrics{
		total: counter("nftproxy_health_checks_total",
			"Health checks of endpoints by type and result: pass, fail, or not_made because of this machine.", "type", "result"),
		transitions: counter("nftproxy_health_check_transitions_total",
			"Endpoints that began to fail their health check, or to pass it again.", "to"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nftproxy_health_check_duration_seconds", Help: "Duration of health checks of endpoints.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"type"}),
	}
}

// countCheck counts a check that has ended. The error wraps [checker.ErrLocal] if it says nothing about the endpoint.
func (m *metrics) countCheck(t model.CheckType, took time.Duration, err error) {
	result := "pass"
	switch {
	case errors.Is(err, checker.ErrLocal):
		result = "not_made"
	case err != nil:
		result = "fail"
	}
	m.total.WithLabelValues(t.String(), result).Inc()
	m.duration.WithLabelValues(t.String()).Observe(took.Seconds())
}

func (m *metrics) countTransition(healthy bool) {
	to := "failing"
	if healthy {
		to = "passing"
	}
	m.transitions.WithLabelValues(to).Inc()
}

type results interface {
	Each(func(model.ServiceName, netip.Addr, model.CheckResult))
	Late() int
}

// newCollector exports how many endpoints pass and fail their health checks, and how many checks are due, but wait for others.
func newCollector(of results) prometheus.Collector {
	endpoints := scraped.Gauge("nftproxy_health_check_endpoints",
		"Endpoints with a health check by state: passing, failing, or waiting for the first check.", "state")
	failing := scraped.Gauge("nftproxy_health_check_failing_endpoints",
		"Endpoints of a Service that fail their health check, for at most 100 Services that have such.", "namespace", "service")
	waiting := scraped.Gauge("nftproxy_health_checks_late", "Health checks that are due, but wait until fewer are under way.")
	return scraped.New(func(out scraped.Values) error {
		states := map[string]int{"passing": 0, "failing": 0, "waiting": 0}
		failures := make(map[model.ServiceName]int)
		of.Each(func(name model.ServiceName, _ netip.Addr, r model.CheckResult) {
			switch {
			case !r.Healthy:
				states["failing"]++
				failures[name]++
			case r.Since.IsZero():
				states["waiting"]++
			default:
				states["passing"]++
			}
		})
		for state, n := range states {
			out.Add(endpoints, float64(n), state)
		}
		for _, name := range feature.Highest(failures) {
			out.Add(failing, float64(failures[name]), name.Namespace, name.Name)
		}
		out.Add(waiting, float64(of.Late()))
		return nil
	}, endpoints, failing, waiting)
}

func (t *target) failing(name model.ServiceName) model.FailingCheck {
	sum := sha256.Sum256([]byte(t.how.Value()))
	f := model.FailingCheck{ServiceRef: name.Ref(), Endpoint: t.address, Check: hex.EncodeToString(sum[:12])}
	if t.protocol != 0 {
		f.Protocol = t.protocol.String()
	}
	return f
}

// Failing returns the endpoints that fail, in a fixed order.
func (e *Engine) Failing() (out []model.FailingCheck) {
	e.mu.Lock()
	for _, s := range e.services {
		for _, m := range s.members {
			if !m.target.healthy {
				out = append(out, m.target.failing(s.name))
			}
		}
	}
	e.mu.Unlock()
	slices.SortFunc(out, func(a, b model.FailingCheck) int {
		return cmp.Or(a.ServiceName().Compare(b.ServiceName()), a.Endpoint.Compare(b.Endpoint))
	})
	return out
}

// AddTo implements [feature.Knower].
func (e *Engine) AddTo(k *feature.Known) { k.Failing = e.Failing() }

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, failing := Mark(s, k.Failing)
	return feature.Planned{Snapshot: edited, Endpoints: failing, State: "failing a health check"}, nil
}

// Mark returns a snapshot as an engine edits it that has these results before its first
// check: of a Service that checks an endpoint in another way now, the result stays, and a
// new one has the result of another Service with the same check. marked has the endpoints that
// fail, for example "10.1.1.2:80 of default/web".
func Mark(s *model.Snapshot, results []model.FailingCheck) (edited *model.Snapshot, marked []string) {
	if len(results) == 0 {
		return s, nil
	}
	e := newEngine(new(feature.Node), nil, slog.New(slog.DiscardHandler))
	s.Edit(e.Edit)
	e.adopt(results)
	edited = s.Edit(e.Edit)
	for _, f := range e.Failing() {
		marked = append(marked, f.Endpoint.String()+" of "+f.ServiceName().String())
	}
	return edited, marked
}

func (e *Engine) adopt(results []model.FailingCheck) {
	e.mu.Lock()
	defer e.mu.Unlock()
	same := make(map[model.FailingCheck][]*target, len(e.targets))
	for _, t := range e.targets {
		f := t.failing(model.ServiceName{})
		same[f] = append(same[f], t)
	}
	now := time.Now()
	for _, f := range results {
		of := f
		of.ServiceRef = model.ServiceRef{}
		for _, t := range same[of] {
			e.set(t, false, now)
		}
		if t := e.services[f.ServiceName()].find(f.Endpoint.Addr()); t != nil {
			e.set(t, false, now)
		}
	}
}
