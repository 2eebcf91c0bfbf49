package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/model"
)

type answerMetrics struct {
	healthz, livez *prometheus.CounterVec
	// checks and last are served at /metrics/slis.
	slis   *prometheus.Registry
	checks *prometheus.CounterVec
	last   *prometheus.GaugeVec
}

func newAnswerMetrics(m maker) answerMetrics {
	slis := newMaker()
	return answerMetrics{
		healthz: m.counter("kubeproxy_proxy_healthz_total", "Answers of the health server at /healthz, by HTTP status.", "code"),
		livez:   m.counter("kubeproxy_proxy_livez_total", "Answers of the health server at /livez, by HTTP status.", "code"),
		slis:    slis.registry,
		checks:  slis.counter("kubernetes_healthchecks_total", "Requested health checks, by result.", "name", "type", "status"),
		last:    slis.gauge("kubernetes_healthcheck", "Last result of a health check: 1 is healthy.", "name", "type"),
	}
}

// Answered counts an answer of the health server. path is /healthz or /livez.
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

// check records the result of a health check for /metrics/slis.
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

func newCleanMetrics(m maker) cleanMetrics {
	return cleanMetrics{
		duration: m.histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
			"Duration of cleanups of UDP conntrack entries.", syncBuckets(), familyLabel),
		deleted: m.counter("kubeproxy_conntrack_reconciler_deleted_entries_total",
			"UDP conntrack entries that were deleted because their endpoint is gone.", familyLabel),
	}
}

// Cleaned counts one conntrack cleanup of a family.
func (s *Set) Cleaned(f model.Family, took time.Duration, deleted int) {
	s.clean.duration.WithLabelValues(f.String()).Observe(took.Seconds())
	s.clean.deleted.WithLabelValues(f.String()).Add(float64(deleted))
}
