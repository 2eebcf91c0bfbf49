package daemon

import (
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/web"
)

// healthSite returns the pages of the health server (10.1). Load balancers ask with a host
// name of their choice, or without any.
func (w *work) healthSite() *serve.Site {
	return serve.NewSite(w.guard(), []serve.Page{
		{Path: "/healthz", Public: true, Handler: w.health},
		{Path: "/livez", Public: true, Handler: w.health},
		{Path: "/healthz/{namespace}/{name}", Public: true, Handler: &health.Balances{Known: w}},
	})
}

// metricsSite returns the pages of the metrics server (11.2, 11.4).
func (w *work) metricsSite() *serve.Site {
	pages := append(w.dataPages(), w.debugPages().List()...)
	index := serve.Index("nftproxy on "+w.node.NodeName, pages)
	return serve.NewSite(w.guard(), append(pages, serve.Page{Path: "/{$}", Handler: index}))
}

// Serves reports whether a Balance has a usable server; known is false if there is none of this name.
func (w *work) Serves(name model.ServiceName) (usable, known bool) {
	b := feature.Find[interface {
		Serves(model.ServiceName) (usable, known bool)
	}](w.Features)
	if b == nil {
		return false, false
	}
	return b.Serves(name)
}

// guard admits requests by the names of this machine, and by those that are configured
// (11.14).
func (w *work) guard() serve.Guard {
	hostname, _ := os.Hostname() // without it, the node has one name less
	return serve.Guard{Names: slices.Concat([]string{w.node.NodeName, hostname}, w.Config.Own.AllowedHosts)}
}

// dataPages are about Services, and for monitoring.
func (w *work) dataPages() (out []serve.Page) {
	if w.Config.Own.Web {
		out = append(out, serve.Page{Path: web.Path, Handler: web.Handler(), About: "connections, changes and problems at present, as a page"})
	}
	noter := feature.Find[interface {
		Noting(http.Handler) http.Handler
	}](w.Features)
	for _, p := range slices.Concat(w.status.Pages(), w.featurePages()) {
		if noter != nil {
			p.Handler = noter.Noting(p.Handler)
		}
		out = append(out, p)
	}
	return append(out,
		serve.Page{Path: "/metrics", Handler: w.metrics.Handler(), About: "metrics for Prometheus"},
		serve.Page{Path: "/metrics/slis", Handler: w.metrics.SLIs()})
}

// featurePages are the documents of features.
func (w *work) featurePages() (out []serve.Page) {
	for v := range featuresOf[feature.Viewer](w.Features) {
		path, about := v.Page()
		out = append(out, w.status.Page(path, about, func(q api.LiveQuery, byName bool) (fmt.Stringer, error) {
			return v.View(feature.Query{Filter: q.Filter, Limit: q.Limit, ByName: byName})
		}))
	}
	return out
}

// debugPages are the ones that Kubernetes components have.
func (w *work) debugPages() serve.Pages {
	p := serve.Pages{Process: process{w}, Flagz: w.Config.Feature(config.GateFlagz, true), Profiling: w.Config.Kube.EnableProfiling, Log: w.Log}
	if w.Config.Feature(config.GateStatusz, true) {
		p.Version = w.Version
	}
	return p
}

// process implements [serve.Process].
type process struct{ *work }

// Pinged implements [serve.Process].
func (p process) Pinged() { p.metrics.Pinged() }

// Configz implements [serve.Process].
func (p process) Configz() ([]byte, error) { return p.Config.Configz() }
