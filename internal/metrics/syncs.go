package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
)

type syncMetrics struct {
	all, full, partial, programming *prometheus.HistogramVec
	last                            *prometheus.GaugeVec
	withoutLocal                    *series
	failures, postponed             *prometheus.CounterVec
}

// syncBuckets are kube-proxy's buckets for durations of syncs, in seconds.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets are kube-proxy's buckets for the network programming
// duration, in seconds. Its list begins with 0 as well.
func programmingBuckets() []float64 {
	out := []float64{0, 0.25, 0.5}
	out = append(out, prometheus.LinearBuckets(1, 1, 59)...)
	out = append(out, prometheus.LinearBuckets(60, 5, 12)...)
	return append(out, prometheus.LinearBuckets(120, 30, 7)...)
}

func newSyncMetrics(m maker) syncMetrics {
	return syncMetrics{
		all: m.newHistogram("kubeproxy_sync_proxy_rules_duration_seconds",
			"Duration of syncs, failed ones too.", syncBuckets(), familyLabel),
		full: m.newHistogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"Duration of syncs that compared all rules with the kernel: the first one, after a failure, after an hour, when the Node changes.", syncBuckets(), familyLabel),
		partial: m.newHistogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"Duration of syncs for changed Services only.", syncBuckets(), familyLabel),
		last: m.newGauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			"Unix time at which the last successful sync ended.", familyLabel),
		programming: m.newHistogram("kubeproxy_network_programming_duration_seconds",
			"Time from a change of endpoints to the rules that follow it.", programmingBuckets(), familyLabel),
		withoutLocal: m.newSeries("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Service ports with a Local traffic policy whose endpoints are all on other nodes.", "traffic_policy", familyLabel),
		failures: m.newCounter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Failed syncs.", familyLabel),
		postponed: m.newCounter("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
			"Syncs after which unused chains were left because the kernel still referred to them.", familyLabel),
	}
}

// Observe records a sync: it is an observer of [agent.Agent]. A sync covers all
// families, so it counts for each of them.
func (s *Set) Observe(sync *agent.Sync) {
	for _, f := range s.families {
		s.syncs.observeSync(sync, f.String())
	}
	if sync.Err == nil {
		s.syncs.observeChanges(sync)
		s.syncs.withoutLocal.set(withoutLocal(sync.Router.WithoutLocal(), s.families))
	}
	s.rules.observeSync(sync)
}

func (m *syncMetrics) observeSync(s *agent.Sync, family string) {
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
	m.last.WithLabelValues(family).Set(unixSeconds(endOf(s)))
}

// observeChanges records how long changes of endpoints took. An update has them
// once: if its sync fails they are lost (11.7). The time of a change comes from
// another machine, whose clock may be ahead; a falling sum would look like a
// restart.
func (m *syncMetrics) observeChanges(s *agent.Sync) {
	for _, t := range s.Triggers {
		took := max(0, endOf(s).Sub(t.Time))
		m.programming.WithLabelValues(t.Family.String()).Observe(took.Seconds())
	}
}

func endOf(s *agent.Sync) time.Time { return s.Started.Add(s.Duration) }

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

// Postponed counts a removal of chains that must be retried: see [apply.Observer].
func (s *Set) Postponed(families []model.Family) {
	for _, f := range families {
		s.syncs.postponed.WithLabelValues(f.String()).Inc()
	}
}
