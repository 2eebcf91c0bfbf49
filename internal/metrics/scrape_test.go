package metrics_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/metrics"
)

// TestContentType: 11.2, metrics are in the text format of Prometheus.
func TestContentType(t *testing.T) {
	answer := httptest.NewRecorder()
	handler(newSet()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if got := answer.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("content type of /metrics: %q", got)
	}
	if !strings.Contains(answer.Body.String(), "\nkubernetes_build_info{") {
		t.Errorf("/metrics: %.200q", answer.Body)
	}
}

// TestHealthChecks counts answers of the health server, and shows all health
// checks at /metrics/slis (11.9).
func TestHealthChecks(t *testing.T) {
	s := newSet()
	s.Answered("/healthz", 200)
	s.Answered("/healthz", 503)
	s.Answered("/healthz", 503)
	s.Answered("/livez", 200)
	expect(t, scrape(t, s, "/metrics"), map[string]float64{
		`kubeproxy_proxy_healthz_total{code="200"}`: 1,
		`kubeproxy_proxy_healthz_total{code="503"}`: 2,
		`kubeproxy_proxy_livez_total{code="200"}`:   1,
		`kubeproxy_proxy_livez_total{code="503"}`:   absent,
	})
	s.Pinged()
	expect(t, scrape(t, s, "/metrics/slis"), map[string]float64{
		`kubernetes_healthcheck{name="ping",type="healthz"}`:                         1,
		`kubernetes_healthcheck{name="proxy",type="healthz"}`:                        0,
		`kubernetes_healthcheck{name="proxy",type="livez"}`:                          1,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"}`: 1,
		`kubernetes_healthchecks_total{name="proxy",status="error",type="healthz"}`:  2,
		"nftproxy_drift_changes_total":                                               absent,
	})
}

// gone is a client that has hung up.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

// TestClientHangsUp: a scrape without a client leaves no trace in the log.
func TestClientHangsUp(t *testing.T) {
	var log strings.Builder
	s := metrics.New("v1.2.3", nil, slog.New(slog.NewTextHandler(&log, nil)))
	handler(s).ServeHTTP(gone{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("the log says\n%s", log.String())
	}
}
