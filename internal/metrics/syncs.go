package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
)

// syncMetrics are what kube-proxy tells of its syncs.
type syncMetrics struct {
	all, full, partial *prometheus.HistogramVec
	last               *prometheus.GaugeVec
	programming        *prometheus.HistogramVec
	withoutLocal       *seriesGauge
	failures           *prometheus.CounterVec
	postponed          *prometheus.CounterVec
}

// syncBuckets are those of kube-proxy for work of its own, in seconds.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets are those of kube-proxy for the way from a change of the
// cluster to the rules, in seconds. The first one is 0, because they are merged
// into a list that begins with it.
func programmingBuckets() []float64 {
	out := []float64{0, 0.25, 0.5}
	out = append(out, prometheus.LinearBuckets(1, 1, 59)...)
	out = append(out, prometheus.LinearBuckets(60, 5, 12)...)
	return append(out, prometheus.LinearBuckets(120, 30, 7)...)
}

func newSyncMetrics(factory promauto.Factory, registry *prometheus.Registry) syncMetrics {
	duration := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{familyLabel})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{familyLabel})
	}
	return syncMetrics{
		all: duration("kubeproxy_sync_proxy_rules_duration_seconds",
			"Duration of syncs, failed ones too.", syncBuckets()),
		full: duration("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"Duration of syncs that compared all rules with the kernel: the first one, after a failure, after an hour, when the Node changes.", syncBuckets()),
		partial: duration("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"Duration of syncs that looked at changed Services only.", syncBuckets()),
		last: factory.NewGaugeVec(prometheus.GaugeOpts{Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			Help: "Unix time at which the last successful sync ended."}, []string{familyLabel}),
		programming: duration("kubeproxy_network_programming_duration_seconds",
			"Time from a change of endpoints to the rules that follow it.", programmingBuckets()),
		withoutLocal: newSeriesGauge(registry, "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Service ports with a Local traffic policy whose endpoints are all on other nodes.", "traffic_policy", familyLabel),
		failures: counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
			"Failed syncs."),
		postponed: counter("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
			"Syncs after which unused chains were left because the kernel still referred to them."),
	}
}

// Observe takes a sync in: an observer of [agent.Agent]. One transaction covers
// all families, so that each of them had the sync.
func (s *Set) Observe(sync *agent.Sync) {
	for _, f := range s.families {
		s.syncs.observe(sync, f.String())
	}
	if sync.Err == nil {
		s.syncs.observeChanges(sync)
		s.syncs.withoutLocal.set(withoutLocal(sync.Router.WithoutLocal(), s.families))
	}
	s.rules.observe(sync)
}

func (m *syncMetrics) observe(s *agent.Sync, family string) {
	kind := m.partial
	if s.Compared {
		kind = m.full
	}
	for _, h := range []*prometheus.HistogramVec{m.all, kind} {
		h.WithLabelValues(family).Observe(s.Duration.Seconds())
	}
	if s.Err != nil {
		m.failures.WithLabelValues(family).Inc()
		return
	}
	m.last.WithLabelValues(family).Set(unixSeconds(end(s)))
}

// observeChanges tells how long changes of endpoints took to get here. An
// update brings them once: when the sync for it failed they are lost (11.7). The
// clock that says when they happened is another machine's and may be ahead of
// ours; a sum that falls would be taken for a restart.
func (m *syncMetrics) observeChanges(s *agent.Sync) {
	for _, t := range s.Triggers {
		took := max(0, end(s).Sub(t.Time))
		m.programming.WithLabelValues(t.Family.String()).Observe(took.Seconds())
	}
}

func end(s *agent.Sync) time.Time { return s.Started.Add(s.Duration) }

func withoutLocal(by map[model.Family]model.WithoutLocal, families []model.Family) []sample {
	var out []sample
	for _, f := range families {
		n := by[f]
		out = append(out,
			sample{[]string{"internal", f.String()}, float64(n.Internal)},
			sample{[]string{"external", f.String()}, float64(n.External)})
	}
	return out
}

// Postponed counts a clean-up that did not work at once: see
// [apply.Applier.Postponed].
func (s *Set) Postponed(families []model.Family) {
	for _, f := range families {
		s.syncs.postponed.WithLabelValues(f.String()).Inc()
	}
}
