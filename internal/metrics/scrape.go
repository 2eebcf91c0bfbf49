package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nftproxy/nftproxy/internal/budget"
)

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
