package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/model"
)

// answerMetrics count what health checks are told.
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
			Help: "Health checks that were asked for, by result."}, []string{"name", "type", "status"}),
		last: promauto.With(slis).NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck",
			Help: "Result of a health check when it was asked for last: 1 is healthy."}, []string{"name", "type"}),
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

// check notes the result of a health check for /metrics/slis.
func (m *answerMetrics) check(name, kind string, healthy bool) {
	status, value := "error", 0.0
	if healthy {
		status, value = "success", 1
	}
	m.checks.WithLabelValues(name, kind, status).Inc()
	m.last.WithLabelValues(name, kind).Set(value)
}

// cleanMetrics tell of the clean-up of connection tracking (9.12).
type cleanMetrics struct {
	duration *prometheus.HistogramVec
	deleted  *prometheus.CounterVec
}

func newCleanMetrics(factory promauto.Factory) cleanMetrics {
	return cleanMetrics{
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{Name: "kubeproxy_conntrack_reconciler_sync_duration_seconds",
			Help: "Duration of clean-ups of UDP connections.", Buckets: syncBuckets()}, []string{familyLabel}),
		deleted: factory.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
			Help: "UDP connections that were forgotten because their endpoint is gone."}, []string{familyLabel}),
	}
}

// Cleaned takes a clean-up of UDP connections of one family in.
func (s *Set) Cleaned(f model.Family, took time.Duration, deleted int) {
	s.clean.duration.WithLabelValues(f.String()).Observe(took.Seconds())
	s.clean.deleted.WithLabelValues(f.String()).Add(float64(deleted))
}
