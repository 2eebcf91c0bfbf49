package daemon

import (
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/serve"
)

// publicPages answer requests by any name: they say no more than whether the node serves.
var publicPages = []string{"health /healthz", "health /healthz/{namespace}/{name}", "health /livez", "metrics /healthz"}

// unchangedProgram fails a test that changes it.
type unchangedProgram struct{ t *testing.T }

func (p unchangedProgram) Usable() error            { return nil }
func (p unchangedProgram) Flags() map[string]string { return nil }
func (p unchangedProgram) SetVerbosity(uint32) error {
	p.t.Error("the log level was set")
	return nil
}

// TestEveryPageIsGuarded: 11.14. What answers requests of other sites is listed above, and
// nothing else does.
func TestEveryPageIsGuarded(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := &config.Config{Own: config.Own{Web: true, AllowedHosts: []string{"metrics.example.com"}}}
	c.Kube.EnableProfiling = true
	w := &work{
		Daemon: &Daemon{
			Node: new(feature.Node), Config: c, Version: "v1", Log: log, Program: unchangedProgram{t},
		},
		node: model.Config{NodeName: "node-1"}, metrics: metrics.New("v1", model.Families[:], log), status: report.New(report.Config{Log: log}),
	}
	var public []string
	for server, site := range map[string]*serve.Site{"metrics": w.metricsSite(), "health": w.healthSite()} {
		if len(site.Pages()) < 2 {
			t.Errorf("%s server: %d pages", server, len(site.Pages()))
		}
		for _, p := range site.Pages() {
			if p.Public {
				public = append(public, server+" "+p.Path)
				continue
			}
			for _, c := range []struct {
				method, host, origin string
				want                 int
			}{
				{"GET", "evil.example", "", 421},
				{"PUT", "evil.example:10249", "", 421},
				{"GET", "127.0.0.1:10249", "http://evil.example", 403},
				{"PUT", "metrics.example.com", "http://evil.example", 403},
				{"DELETE", "node-1", "", 405},
			} {
				r := httptest.NewRequest(c.method, pathOf(p), nil)
				r.Host = c.host
				if c.origin != "" {
					r.Header.Set("Origin", c.origin)
				}
				answer := httptest.NewRecorder()
				if site.ServeHTTP(answer, r); answer.Code != c.want {
					t.Errorf("%s server: %s %s by the name %s, origin %q: %d, want %d", server, c.method, p.Path, c.host, c.origin, answer.Code, c.want)
				}
			}
		}
	}
	if slices.Sort(public); !slices.Equal(public, publicPages) {
		t.Errorf("public are %q, want %q", public, publicPages)
	}
}

// pathOf returns the path of a page.
func pathOf(p serve.Page) string {
	if p.Path == "/{$}" {
		return "/"
	}
	return p.Path
}
