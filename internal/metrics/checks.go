package metrics

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// Results of health checks, as values of a label.
const (
	CheckPassed  = "pass"
	CheckFailed  = "fail"
	CheckNotMade = "not_made" // it says nothing about the endpoint
)

type checkMetrics struct {
	total, transitions *prometheus.CounterVec
	duration           *prometheus.HistogramVec
}

func newCheckMetrics(m maker) checkMetrics {
	return checkMetrics{
		total: m.newCounter("nftproxy_health_checks_total",
			"Health checks of endpoints by type and result: pass, fail, or not_made because of this machine.", "type", "result"),
		transitions: m.newCounter("nftproxy_health_check_transitions_total",
			"Endpoints that began to fail their health check, or to pass it again.", "to"),
		duration: m.newHistogram("nftproxy_health_check_duration_seconds", "Duration of health checks of endpoints.",
			prometheus.ExponentialBuckets(0.0001, 4, 10), "type"),
	}
}

// Checked counts a health check of an endpoint.
func (s *Set) Checked(t model.CheckType, took time.Duration, result string) {
	s.checks.total.WithLabelValues(t.String(), result).Inc()
	s.checks.duration.WithLabelValues(t.String()).Observe(took.Seconds())
}

// HealthChanged counts an endpoint whose health has changed.
func (s *Set) HealthChanged(healthy bool) {
	to := "failing"
	if healthy {
		to = "passing"
	}
	s.checks.transitions.WithLabelValues(to).Inc()
}

// FollowChecks exports how many endpoints pass and fail their health checks, and how many
// checks are due, but wait for others. It is called at most once.
func (s *Set) FollowChecks(checks report.Checks, late func() int) {
	s.registry.MustRegister(&checkCollector{
		checks: checks, late: late,
		endpoints: prometheus.NewDesc("nftproxy_health_check_endpoints",
			"Endpoints with a health check by state: passing, failing, or waiting for the first check.", []string{"state"}, nil),
		failing: prometheus.NewDesc("nftproxy_health_check_failing_endpoints",
			"Endpoints of a Service that fail their health check, for at most 100 Services that have such.", []string{"namespace", "service"}, nil),
		waiting: prometheus.NewDesc("nftproxy_health_checks_late", "Health checks that are due, but wait until fewer are under way.", nil, nil),
	})
}

// checkCollector asks for the results of health checks once in a scrape.
type checkCollector struct {
	checks                      report.Checks
	late                        func() int
	endpoints, failing, waiting *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *checkCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.endpoints
	out <- c.failing
	out <- c.waiting
}

// Collect implements [prometheus.Collector].
func (c *checkCollector) Collect(out chan<- prometheus.Metric) {
	states := map[string]int{"passing": 0, "failing": 0, "waiting": 0}
	failing := make(map[model.ServiceName]int)
	c.checks.Each(func(name model.ServiceName, _ netip.Addr, r model.CheckResult) {
		switch {
		case !r.Healthy:
			states["failing"]++
			failing[name]++
		case r.Since.IsZero():
			states["waiting"]++
		default:
			states["passing"]++
		}
	})
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(c.endpoints, prometheus.GaugeValue, float64(n), state)
	}
	for _, name := range feature.Highest(failing) {
		out <- prometheus.MustNewConstMetric(c.failing, prometheus.GaugeValue, float64(failing[name]), name.Namespace, name.Name)
	}
	out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(c.late()))
}
