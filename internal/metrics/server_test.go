package metrics_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/metrics"
)

const (
	plain   = "text/plain; charset=utf-8"
	missing = "404 page not found\n"
)

// call sends a request over plain HTTP (11.1).
func call(t *testing.T, server *httptest.Server, method, path, body string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// allPaths answers everything. The level that was asked for goes to level.
func allPaths(level *uint32) metrics.Paths {
	return metrics.Paths{
		Configz: func() ([]byte, error) {
			return []byte(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`), nil
		},
		Statusz: true,
		Flags:   func() map[string]string { return map[string]string{"v": "2", "cluster-cidr": "10.128.0.0/9"} },
		Status: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "all is well")
		}),
		Profiling: true,
		SetVerbosity: func(l uint32) error {
			if l > 10 {
				return errors.New("too much")
			}
			*level = l
			return nil
		},
	}
}

func TestPaths(t *testing.T) {
	var level uint32
	server := httptest.NewServer(newSet().Handler(allPaths(&level)))
	defer server.Close()
	for _, c := range []struct {
		name, method, path, body string

		status            int
		contentType, text string
	}{
		{"11.2 healthz", "GET", "/healthz", "", 200, plain, "ok"},
		{"11.2 healthz, whatever the method", "POST", "/healthz", "", 200, plain, "ok"},
		{"11.2 proxyMode", "GET", "/proxyMode", "", 200, plain, "nftables"},
		{"11.3 configz", "GET", "/configz", "", 200, "application/json", `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`},
		{"11.2 no livez", "GET", "/livez", "", 404, plain, missing},
		{"11.2 no readyz", "GET", "/readyz", "", 404, plain, missing},
		{"11.2 nothing at the root", "GET", "/", "", 404, plain, missing},
		{"11.2 nothing below healthz", "GET", "/healthz/etcd", "", 404, plain, missing},
		{"11.2 verbosity", "PUT", "/debug/flags/v", "4", 200, plain, "successfully set klog.logging.verbosity to 4\n"},
		{"11.2 verbosity with the newline of a shell", "PUT", "/debug/flags/v", "4\n", 200, plain, "successfully set klog.logging.verbosity to 4\n"},
		{"11.2 no verbosity", "PUT", "/debug/flags/v", "many", 400, plain, "\"many\" is no level: send a whole number, 0 or more\n"},
		{"11.2 a verbosity below 0", "PUT", "/debug/flags/v", "-1", 400, plain, "\"-1\" is no level: send a whole number, 0 or more\n"},
		{"11.2 a verbosity that cannot be set", "PUT", "/debug/flags/v", "11", 400, plain, "too much\n"},
		{"11.2 verbosity without PUT", "GET", "/debug/flags/v", "", 406, plain, "unsupported http method: use PUT\n"},
		{"11.2 other flags", "PUT", "/debug/flags/vmodule", "4", 404, plain, missing},
		{"11.4 flagz", "GET", "/flagz", "", 200, plain,
			"nftproxy flagz\nFor people: what follows here may change in any version.\n\ncluster-cidr=10.128.0.0/9\nv=2\n"},
		{"status is somebody else's", "GET", "/status", "", 200, plain, "all is well"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, text := call(t, server, c.method, c.path, c.body)
			if answer.StatusCode != c.status || text != c.text {
				t.Errorf("%s %q, want %d %q", answer.Status, text, c.status, c.text)
			}
			if got := answer.Header.Get("Content-Type"); got != c.contentType {
				t.Errorf("content type %q, want %q", got, c.contentType)
			}
			if got := answer.Header.Get("X-Content-Type-Options"); got != "nosniff" && c.path != "/status" {
				t.Errorf("X-Content-Type-Options: %q", got)
			}
		})
	}
	if level != 4 {
		t.Errorf("level %d, want 4", level)
	}
}

// TestTextPaths looks at what changes from call to call (11.2, 11.4).
func TestTextPaths(t *testing.T) {
	var level uint32
	server := httptest.NewServer(newSet().Handler(allPaths(&level)))
	defer server.Close()
	for path, want := range map[string]string{
		"/statusz":             `^nftproxy statusz\n[^\n]+\n\nStarted: \d{4}-\S+Z\nUp: \S+\nVersion: v1\.2\.3\nGo version: go\S+\nPlatform: linux/\S+\n$`,
		"/metrics":             `(?m)^kubernetes_build_info\{`,
		"/debug/pprof/":        `goroutine`,
		"/debug/pprof/heap":    ``,
		"/debug/pprof/symbol":  `num_symbols`,
		"/debug/pprof/trace":   `^go`,
		"/debug/pprof":         `goroutine`, // redirected
		"/debug/pprof/profile": ``,
	} {
		if path == "/debug/pprof/profile" || path == "/debug/pprof/trace" {
			path += "?seconds=1"
		}
		answer, text := call(t, server, "GET", path, "")
		if answer.StatusCode != http.StatusOK || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %s %.200q", path, answer.Status, text)
		}
	}
	answer, _ := call(t, server, "GET", "/metrics", "")
	if got := answer.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("content type of /metrics: %q", got)
	}
}

// TestPathsThatAreOff answer 404 (11.2): without profiling, and with the gates
// of 11.4 closed.
func TestPathsThatAreOff(t *testing.T) {
	bare := httptest.NewServer(newSet().Handler(metrics.Paths{}))
	defer bare.Close()
	var level uint32
	paths := allPaths(&level)
	paths.Profiling = false
	noProfiling := httptest.NewServer(newSet().Handler(paths))
	defer noProfiling.Close()
	for _, path := range []string{"/debug/pprof/", "/debug/pprof", "/debug/pprof/heap", "/debug/flags/v"} {
		for _, server := range []*httptest.Server{bare, noProfiling} {
			if answer, text := call(t, server, "PUT", path, "4"); answer.StatusCode != 404 || text != missing {
				t.Errorf("%s: %s %q", path, answer.Status, text)
			}
		}
	}
	for _, path := range []string{"/statusz", "/flagz", "/configz", "/status"} {
		if answer, text := call(t, bare, "GET", path, ""); answer.StatusCode != 404 || text != missing {
			t.Errorf("%s: %s %q", path, answer.Status, text)
		}
	}
	if level != 0 {
		t.Error("the level was set")
	}
}

func TestConfigThatCannotBeShown(t *testing.T) {
	server := httptest.NewServer(newSet().Handler(metrics.Paths{Configz: func() ([]byte, error) { return nil, errors.New("no such kind") }}))
	defer server.Close()
	if answer, text := call(t, server, "GET", "/configz", ""); answer.StatusCode != 500 || text != "no such kind\n" {
		t.Errorf("%s %q", answer.Status, text)
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
	fetch(t, s, "/healthz")
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

// TestClientHangsUp: a scrape that nobody waits for leaves no trace in the log.
func TestClientHangsUp(t *testing.T) {
	var log strings.Builder
	s := metrics.New("v1.2.3", nil, slog.New(slog.NewTextHandler(&log, nil)))
	s.Handler(metrics.Paths{}).ServeHTTP(gone{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("the log says\n%s", log.String())
	}
}
