package metrics

import (
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// familyLabel is the label for the IP family, with the values IPv4 and IPv6.
const familyLabel = "ip_family"

// Set holds the metrics of a process, in registries of its own. It is safe for
// concurrent use. Its methods record events; scrapes read the rest.
type Set struct {
	families []model.Family
	log      *slog.Logger

	registry *prometheus.Registry
	syncs    syncMetrics
	rules    ruleMetrics
	answers  answerMetrics
	clean    cleanMetrics
}

// New returns the metrics of a program of that version that serves these
// families; none means both.
func New(version string, families []model.Family, log *slog.Logger) *Set {
	if len(families) == 0 {
		families = model.Families[:]
	}
	m := newMaker()
	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// Kubernetes components export all metrics of the runtime (11.9).
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
	)
	info, _ := debug.ReadBuildInfo()
	buildOf(version, info).exportBuild(m)
	return &Set{
		families: slices.Clone(families),
		log:      log,
		registry: m.registry,
		syncs:    newSyncMetrics(m),
		rules:    newRuleMetrics(m),
		answers:  newAnswerMetrics(m),
		clean:    newCleanMetrics(m),
	}
}

// Add exports the metrics of a feature.
func (s *Set) Add(all ...prometheus.Collector) { s.registry.MustRegister(all...) }

// Describe returns all metrics, also those that have no series yet.
func (s *Set) Describe(out chan<- *prometheus.Desc) {
	s.registry.Describe(out)
	s.answers.slis.Describe(out)
}

// maker makes metrics and registers them.
type maker struct {
	registry *prometheus.Registry
	promauto.Factory
}

func newMaker() maker {
	registry := prometheus.NewRegistry()
	return maker{registry, promauto.With(registry)}
}

func (m maker) newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return m.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (m maker) newGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m maker) newHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m maker) newSeries(name, help string, labels ...string) *seriesGauge {
	g := &seriesGauge{desc: prometheus.NewDesc(name, help, labels, nil)}
	m.registry.MustRegister(g)
	return g
}

// FollowAgent exports when a sync was last requested. It is called once.
func (s *Set) FollowAgent(state func() agent.State) {
	for _, f := range s.families {
		promauto.With(s.registry).NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
			Help:        "Unix time of the last request for a sync.",
			ConstLabels: prometheus.Labels{familyLabel: f.String()},
		}, func() float64 { return unixSeconds(state().LastRequest) })
	}
}

// FollowCluster exports how many events the API server sends, and how many objects
// wait for a sync. It is called at most once.
func (s *Set) FollowCluster(counts func() cluster.Counts) {
	gauge := func(name, help string, value func(cluster.Counts) int) {
		promauto.With(s.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(counts())) })
	}
	counter := func(name, help string, value func(cluster.Counts) uint64) {
		promauto.With(s.registry).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(counts())) })
	}
	gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Services that have changed since the last sync.",
		func(c cluster.Counts) int { return c.PendingServices })
	gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "EndpointSlices that have changed since the last sync.",
		func(c cluster.Counts) int { return c.PendingSlices })
	// One for each family, as kube-proxy counts them (11.6).
	counter("kubeproxy_sync_proxy_rules_service_changes_total", "Events of Services, once for each IP family.",
		func(c cluster.Counts) uint64 { return c.Services * uint64(len(s.families)) })
	counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Events of EndpointSlices.",
		func(c cluster.Counts) uint64 { return c.Slices })
	gauge("nftproxy_rejected_objects", "Objects of the API server with an unusable part; the log says which.",
		func(c cluster.Counts) int { return c.Rejected })
}

// FollowSource exports the state of the source. It is called at most once.
func (s *Set) FollowSource(state func() source.State) {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	s.registry.MustRegister(&sourceCollector{
		state:    state,
		usable:   desc("nftproxy_source_usable", "1 if the files or the API server can be used, else 0; the rules follow what was read before."),
		failures: desc("nftproxy_source_errors_total", "Failed attempts to read the files, or failed requests to the API server for objects."),
		success:  desc("nftproxy_source_last_success_timestamp_seconds", "Unix time at which the files or the API server were read last."),
		warnings: desc("nftproxy_source_warnings", "Warnings about objects that are used, but not as their author may expect; the log and the status have them."),
	})
}

// sourceCollector asks for the state of the source once in a scrape.
type sourceCollector struct {
	state                               func() source.State
	usable, failures, success, warnings *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *sourceCollector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements [prometheus.Collector].
func (c *sourceCollector) Collect(out chan<- prometheus.Metric) {
	state, usable, success := c.state(), 0.0, 0.0
	if state.Err == nil {
		usable = 1
	}
	if !state.LastSuccess.IsZero() {
		success = unixSeconds(state.LastSuccess)
	}
	gauge := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(c.usable, usable)
	gauge(c.success, success)
	gauge(c.warnings, float64(state.Warned))
	out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(state.Failures))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// seriesGauge is a gauge whose series are replaced together: a scrape sees a
// consistent set, without stale series.
type seriesGauge struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	series []sample
}

// sample is one series: the values of its labels, in order, and its value.
type sample struct {
	labels []string
	value  float64
}

// set replaces all series. No two may have the same labels.
func (g *seriesGauge) set(series []sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.series = series
}

// Describe implements [prometheus.Collector].
func (g *seriesGauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements [prometheus.Collector].
func (g *seriesGauge) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	series := g.series
	g.mu.Unlock()
	for _, s := range series {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, s.value, s.labels...)
	}
}
