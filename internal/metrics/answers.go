package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/model"
)

// answerMetrics count the answers of health checks.
type answerMetrics struct {
	healthz, livez *prometheus.CounterVec
	// checks and last are served at /metrics/slis.
	slis   *prometheus.Registry
	checks *prometheus.CounterVec
	last   *prometheus.GaugeVec
}

func newAnswerMetrics(factory promauto.Factory) answerMetrics {
	slis := prometheus.NewRegistry()
	return answerMetrics{
		healthz: factory.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_proxy_healthz_total",
			Help: "Answers of the health server at /healthz, by HTTP status."}, []string{"code"}),
		livez: factory.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_proxy_livez_total",
			Help: "Answers of the health server at /livez, by HTTP status."}, []string{"code"}),
		slis: slis,
		checks: promauto.With(slis).NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total",
			Help: "Requested health checks, by result."}, []string{"name", "type", "status"}),
		last: promauto.With(slis).NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck",
			Help: "Last result of a health check: 1 is healthy."}, []string{"name", "type"}),
	}
}

// Answered counts an answer of the health server, by its path, /healthz or
// /livez, and HTTP status.
func (s *Set) Answered(path string, status int) {
	counter := s.answers.healthz
	if path == "/livez" {
		counter = s.answers.livez
	}
	counter.WithLabelValues(strconv.Itoa(status)).Inc()
	s.answers.check("proxy", path[1:], status == http.StatusOK)
}

// Pinged counts a request of /healthz of the metrics server.
func (s *Set) Pinged() { s.answers.check("ping", "healthz", true) }

// check notes the result of a health check for /metrics/slis.
func (m *answerMetrics) check(name, kind string, healthy bool) {
	status, value := "error", 0.0
	if healthy {
		status, value = "success", 1
	}
	m.checks.WithLabelValues(name, kind, status).Inc()
	m.last.WithLabelValues(name, kind).Set(value)
}

// cleanMetrics measure the conntrack cleanup (9.12).
type cleanMetrics struct {
	duration *prometheus.HistogramVec
	deleted  *prometheus.CounterVec
}

func newCleanMetrics(factory promauto.Factory) cleanMetrics {
	return cleanMetrics{
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{Name: "kubeproxy_conntrack_reconciler_sync_duration_seconds",
			Help: "Duration of cleanups of UDP conntrack entries.", Buckets: syncBuckets()}, []string{familyLabel}),
		deleted: factory.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
			Help: "UDP conntrack entries that were deleted because their endpoint is gone."}, []string{familyLabel}),
	}
}

// Cleaned counts one cleanup of UDP connections of a family.
func (s *Set) Cleaned(f model.Family, took time.Duration, deleted int) {
	s.clean.duration.WithLabelValues(f.String()).Observe(took.Seconds())
	s.clean.deleted.WithLabelValues(f.String()).Add(float64(deleted))
}
