package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/tools/metrics"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Requests are the metrics of requests to the API server.
type Requests struct{ registry *prometheus.Registry }

// CountRequests begins to count the requests to the API server, under the names
// that Kubernetes components use (11.9). Call it before the first request.
// client-go has one receiver in a process: only the first call has an effect.
func CountRequests() *Requests {
	m := newMaker()
	byVerb := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return m.newHistogram(name, help, buckets, "verb", "host")
	}
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	metrics.Register(metrics.RegisterOpts{
		RequestResult: requestResult{m.newCounter("rest_client_requests_total",
			"Requests to the API server, by HTTP status.", "code", "method", "host")},
		RequestRetry: requestResult{m.newCounter("rest_client_request_retries_total",
			"Retried requests to the API server, by HTTP status.", "code", "verb", "host")},
		RequestLatency: requestLatency{byVerb("rest_client_request_duration_seconds",
			"Duration of requests to the API server.", seconds...)},
		RateLimiterLatency: requestLatency{byVerb("rest_client_rate_limiter_duration_seconds",
			"Time that the client delayed requests to the API server.", seconds...)},
		RequestSize: requestSize{byVerb("rest_client_request_size_bytes",
			"Size of requests to the API server.", bytes...)},
		ResponseSize: requestSize{byVerb("rest_client_response_size_bytes",
			"Size of answers of the API server.", bytes...)},
	})
	return &Requests{m.registry}
}

// ExportRequests exports the counts. It is called at most once.
func (s *Set) ExportRequests(r *Requests) { s.registry.MustRegister(r.registry) }

type requestResult struct{ vec *prometheus.CounterVec }

func (r requestResult) Increment(_ context.Context, code, method, host string) {
	r.vec.WithLabelValues(code, method, host).Inc()
}

func (r requestResult) IncrementRetry(ctx context.Context, code, method, host string) {
	r.Increment(ctx, code, method, host)
}

type requestLatency struct{ vec *prometheus.HistogramVec }

func (l requestLatency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.vec.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type requestSize struct{ vec *prometheus.HistogramVec }

func (s requestSize) Observe(_ context.Context, verb, host string, bytes float64) {
	s.vec.WithLabelValues(verb, host).Observe(bytes)
}

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
		healthz: m.newCounter("kubeproxy_proxy_healthz_total", "Answers of the health server at /healthz, by HTTP status.", "code"),
		livez:   m.newCounter("kubeproxy_proxy_livez_total", "Answers of the health server at /livez, by HTTP status.", "code"),
		slis:    slis.registry,
		checks:  slis.newCounter("kubernetes_healthchecks_total", "Requested health checks, by result.", "name", "type", "status"),
		last:    slis.newGauge("kubernetes_healthcheck", "Last result of a health check: 1 is healthy.", "name", "type"),
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
		duration: m.newHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
			"Duration of cleanups of UDP conntrack entries.", syncBuckets(), familyLabel),
		deleted: m.newCounter("kubeproxy_conntrack_reconciler_deleted_entries_total",
			"UDP conntrack entries that were deleted because their endpoint is gone.", familyLabel),
	}
}

// Cleaned counts one conntrack cleanup of a family.
func (s *Set) Cleaned(f model.Family, took time.Duration, deleted int) {
	s.clean.duration.WithLabelValues(f.String()).Observe(took.Seconds())
	s.clean.deleted.WithLabelValues(f.String()).Add(float64(deleted))
}

const (
	// scrapeTimeout limits the time that a client takes to read an answer. The
	// server has a longer one, for profiles.
	scrapeTimeout = 30 * time.Second
)

// Handler serves the metrics (11.2).
func (s *Set) Handler() http.Handler { return s.newHandler(s.registry) }

// SLIs serves the results of health checks (11.9).
func (s *Set) SLIs() http.Handler { return s.newHandler(s.answers.slis) }

// newHandler serves the metrics of a registry. A metric that fails is logged and left
// out.
func (s *Set) newHandler(registry *prometheus.Registry) http.Handler {
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{s.log},
		MaxRequestsInFlight: budget.ScrapeRequests,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Only writers in tests lack deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
		scrape.ServeHTTP(w, r)
	})
}

type scrapeLog struct{ log *slog.Logger }

// Println logs an error about a metric. Clients that disconnect must not fill the
// log.
func (l scrapeLog) Println(problem ...any) {
	for _, p := range problem {
		if err, ok := p.(error); ok && errors.As(err, new(net.Error)) {
			l.log.Debug("client does not read the metrics", "error", err)
			return
		}
	}
	l.log.Warn("metrics are incomplete", "error", strings.TrimSpace(fmt.Sprintln(problem...)))
}

// build describes how the program was built. Unknown fields are empty.
type build struct {
	version, major, minor string
	commit, tree, date    string
}

// buildOf combines the version, for example v1.2.3, and the build information of
// the toolchain, which may be nil.
func buildOf(version string, info *debug.BuildInfo) build {
	b := build{version: version}
	if parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3); len(parts) == 3 {
		b.major, b.minor = parts[0], parts[1]
	}
	if info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			b.date = s.Value
		case "vcs.modified":
			b.tree = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return b
}

// exportBuild exports the build with the labels that Kubernetes components use (11.9),
// and with a few others.
func (b build) exportBuild(m maker) {
	m.newGauge("kubernetes_build_info", "Always 1; the labels are the version of nftproxy, not of Kubernetes.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform",
	).WithLabelValues(b.major, b.minor, b.version, b.commit, b.tree, b.date, runtime.Version(), runtime.Compiler, platform).Set(1)
	m.newGauge("nftproxy_build_info", "Always 1; the labels are the version.", "version", "revision", "go_version").
		WithLabelValues(b.version, b.commit, runtime.Version()).Set(1)
}

const platform = runtime.GOOS + "/" + runtime.GOARCH
