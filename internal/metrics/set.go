package metrics

import (
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// familyLabel is the label for the IP family, with the values IPv4 and IPv6.
const familyLabel = "ip_family"

// Set holds the metrics of a process, in registries of its own. Its methods report
// events to it and are safe for concurrent use; it reads the rest when it is
// scraped.
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
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// All that Kubernetes components export of the runtime (11.9).
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
	)
	factory := promauto.With(registry)
	info, _ := debug.ReadBuildInfo()
	buildOf(version, info).export(factory)
	return &Set{
		families: slices.Clone(families),
		log:      log,
		registry: registry,
		syncs:    newSyncMetrics(factory, registry),
		rules:    newRuleMetrics(factory, registry),
		answers:  newAnswerMetrics(factory),
		clean:    newCleanMetrics(factory),
	}
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
// wait for a sync. It is called once, or not at all if the objects come from
// files.
func (s *Set) FollowCluster(counts func() source.Counts) {
	gauge := func(name, help string, value func(source.Counts) int) {
		promauto.With(s.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(counts())) })
	}
	counter := func(name, help string, value func(source.Counts) uint64) {
		promauto.With(s.registry).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(counts())) })
	}
	gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Services that have changed since the last sync.",
		func(c source.Counts) int { return c.PendingServices })
	gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "EndpointSlices that have changed since the last sync.",
		func(c source.Counts) int { return c.PendingSlices })
	// One for each family, as kube-proxy counts them (11.6).
	counter("kubeproxy_sync_proxy_rules_service_changes_total", "Events of Services, once for each IP family.",
		func(c source.Counts) uint64 { return c.Services * uint64(len(s.families)) })
	counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Events of EndpointSlices.",
		func(c source.Counts) uint64 { return c.Slices })
	gauge("nftproxy_rejected_objects", "Objects of the API server with an unusable part; the log says which.",
		func(c source.Counts) int { return c.Rejected })
}

// unixSeconds returns a moment as Prometheus writes it.
func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
