package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/tools/metrics"
)

// Requests are the metrics of requests to the API server.
type Requests struct{ registry *prometheus.Registry }

// CountRequests begins to count the requests to the API server, by the names that
// Kubernetes components use (11.9). Call it before the first request. client-go
// knows one receiver in a process: only the first call of all has an effect.
func CountRequests() *Requests {
	registry := prometheus.NewRegistry()
	factory := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	byVerb := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"})
	}
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	metrics.Register(metrics.RegisterOpts{
		RequestResult: requestResult{counter("rest_client_requests_total",
			"Requests to the API server, by HTTP status.", "code", "method", "host")},
		RequestRetry: requestResult{counter("rest_client_request_retries_total",
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
	return &Requests{registry}
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
