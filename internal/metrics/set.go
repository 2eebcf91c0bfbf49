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
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
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

// Add exports metrics.
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
	services := scraped.Gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Services that have changed since the last sync.")
	endpoints := scraped.Gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "EndpointSlices that have changed since the last sync.")
	serviceEvents := scraped.Counter("kubeproxy_sync_proxy_rules_service_changes_total", "Events of Services, once for each IP family.")
	endpointEvents := scraped.Counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Events of EndpointSlices.")
	rejected := scraped.Gauge("nftproxy_rejected_objects", "Objects of the API server with an unusable part; the log says which.")
	s.Add(scraped.New(func(out scraped.Values) error {
		c := counts()
		out.Add(services, float64(c.PendingServices))
		out.Add(endpoints, float64(c.PendingSlices))
		out.Add(serviceEvents, float64(c.Services*uint64(len(s.families)))) // as kube-proxy counts them (11.6)
		out.Add(endpointEvents, float64(c.Slices))
		out.Add(rejected, float64(c.Rejected))
		return nil
	}, services, endpoints, serviceEvents, endpointEvents, rejected))
}

// FollowSource exports the state of the source. It is called at most once.
func (s *Set) FollowSource(state func() source.State) {
	usable := scraped.Gauge("nftproxy_source_usable", "1 if the files or the API server can be used, else 0; the rules follow what was read before.")
	failures := scraped.Counter("nftproxy_source_errors_total", "Failed attempts to read the files, or failed requests to the API server for objects.")
	success := scraped.Gauge("nftproxy_source_last_success_timestamp_seconds", "Unix time at which the files or the API server were read last.")
	warnings := scraped.Gauge("nftproxy_source_warnings", "Warnings about objects that are used, but not as their author may expect; the log and the status have them.")
	s.Add(scraped.New(func(out scraped.Values) error {
		now := state()
		last := 0.0
		if !now.LastSuccess.IsZero() {
			last = unixSeconds(now.LastSuccess)
		}
		out.Add(usable, scraped.Yes(now.Err == nil))
		out.Add(success, last)
		out.Add(warnings, float64(now.Warned))
		out.Add(failures, float64(now.Failures))
		return nil
	}, usable, failures, success, warnings))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// seriesGauge is a gauge whose series are replaced together: a scrape sees a
// consistent set, without stale series.
type seriesGauge struct {
	mu     sync.Mutex
	series []sample
}

// sample is one series: the values of its labels, in order, and its value.
type sample struct {
	labels []string
	value  float64
}

func (m maker) newSeries(name, help string, labels ...string) *seriesGauge {
	g := new(seriesGauge)
	metric := scraped.Gauge(name, help, labels...)
	m.registry.MustRegister(scraped.New(func(out scraped.Values) error {
		g.mu.Lock()
		series := g.series
		g.mu.Unlock()
		for _, s := range series {
			out.Add(metric, s.value, s.labels...)
		}
		return nil
	}, metric))
	return g
}

// set replaces all series. No two may have the same labels.
func (g *seriesGauge) set(series []sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.series = series
}
