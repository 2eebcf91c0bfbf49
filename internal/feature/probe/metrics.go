package probe

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Results of health checks, as values of a label.
const (
	checkPassed  = "pass"
	checkFailed  = "fail"
	checkNotMade = "not_made" // it says nothing about the endpoint
)

// metrics are counted when checks end.
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

func (m *metrics) countCheck(t model.CheckType, took time.Duration, result string) {
	m.total.WithLabelValues(t.String(), result).Inc()
	m.duration.WithLabelValues(t.String()).Observe(took.Seconds())
}

// countTransition counts an endpoint whose health has changed.
func (m *metrics) countTransition(healthy bool) {
	to := "failing"
	if healthy {
		to = "passing"
	}
	m.transitions.WithLabelValues(to).Inc()
}

type results interface {
	Each(func(model.ServiceName, netip.Addr, model.CheckResult))
	Counts() Counts
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
		out.Add(waiting, float64(of.Counts().Waiting))
		return nil
	}, endpoints, failing, waiting)
}
