package serve_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/serve"
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

// pageServer serves pages.
func pageServer(t *testing.T, p serve.Pages) *httptest.Server {
	p.Log = slog.New(slog.DiscardHandler)
	server := httptest.NewServer(serve.NewSite(serve.Guard{}, p.List()))
	t.Cleanup(server.Close)
	return server
}

// process keeps the requested level.
type process struct {
	level uint32
	err   error // of Configz
}

func (*process) Pinged() {}

func (p *process) Configz() ([]byte, error) {
	return []byte(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`), p.err
}

func (*process) Flags() map[string]string {
	return map[string]string{"v": "2", "cluster-cidr": "10.128.0.0/9"}
}

func (p *process) SetVerbosity(l uint32) error {
	if l > 10 {
		return errors.New("too much")
	}
	p.level = l
	return nil
}

// allPages answers everything.
func allPages(p *process) serve.Pages {
	return serve.Pages{Process: p, Version: "v1.2.3", Flagz: true, Profiling: true}
}

func TestPages(t *testing.T) {
	var p process
	server := pageServer(t, allPages(&p))
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
		{"11.2 no verbosity", "PUT", "/debug/flags/v", "many", 400, plain, "\"many\" is not a level: send a whole number, 0 or more\n"},
		{"11.2 a verbosity below 0", "PUT", "/debug/flags/v", "-1", 400, plain, "\"-1\" is not a level: send a whole number, 0 or more\n"},
		{"11.2 a verbosity that cannot be set", "PUT", "/debug/flags/v", "11", 400, plain, "too much\n"},
		{"11.14 verbosity without PUT", "GET", "/debug/flags/v", "", 405, plain, "GET is not answered here: use PUT\n"},
		{"11.2 other flags", "PUT", "/debug/flags/vmodule", "4", 404, plain, missing},
		{"11.4 flagz", "GET", "/flagz", "", 200, plain,
			"nftproxy flagz\nThis format may change in any version. Do not parse it.\n\ncluster-cidr=10.128.0.0/9\nv=2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, text := call(t, server, c.method, c.path, c.body)
			if answer.StatusCode != c.status || text != c.text {
				t.Errorf("%s %q, want %d %q", answer.Status, text, c.status, c.text)
			}
			if got := answer.Header.Get("Content-Type"); got != c.contentType {
				t.Errorf("content type %q, want %q", got, c.contentType)
			}
			if got := answer.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options: %q", got)
			}
		})
	}
	if p.level != 4 {
		t.Errorf("level %d, want 4", p.level)
	}
}

// TestTextPages looks at what changes from call to call (11.2, 11.4).
func TestTextPages(t *testing.T) {
	var p process
	server := pageServer(t, allPages(&p))
	for path, want := range map[string]string{
		"/statusz":             `^nftproxy statusz\n[^\n]+\n\nStarted: \d{4}-\S+Z\nUp: \S+\nVersion: v1\.2\.3\nGo version: go\S+\nPlatform: linux/\S+\n$`,
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
}

// TestPagesThatAreOff answer 404 (11.2): without profiling, and with the gates
// of 11.4 closed.
func TestPagesThatAreOff(t *testing.T) {
	bare := pageServer(t, serve.Pages{})
	var p process
	paths := allPages(&p)
	paths.Profiling = false
	noProfiling := pageServer(t, paths)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof", "/debug/pprof/heap", "/debug/flags/v"} {
		for _, server := range []*httptest.Server{bare, noProfiling} {
			if answer, text := call(t, server, "PUT", path, "4"); answer.StatusCode != 404 || text != missing {
				t.Errorf("%s: %s %q", path, answer.Status, text)
			}
		}
	}
	for _, path := range []string{"/statusz", "/flagz", "/configz", "/healthz"} {
		if answer, text := call(t, bare, "GET", path, ""); answer.StatusCode != 404 || text != missing {
			t.Errorf("%s: %s %q", path, answer.Status, text)
		}
	}
	if p.level != 0 {
		t.Error("the level was set")
	}
}

func TestConfigThatCannotBeShown(t *testing.T) {
	server := pageServer(t, serve.Pages{Process: &process{err: errors.New("no such kind")}})
	if answer, text := call(t, server, "GET", "/configz", ""); answer.StatusCode != 500 || text != "no such kind\n" {
		t.Errorf("%s %q", answer.Status, text)
	}
}
