package metrics

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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

// export exports the build with the labels that Kubernetes components use (11.9),
// and with a few others.
func (b build) export(factory promauto.Factory) {
	factory.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "Always 1; the labels are the version of nftproxy, not of Kubernetes.",
		ConstLabels: prometheus.Labels{
			"major": b.major, "minor": b.minor, "git_version": b.version, "git_commit": b.commit, "git_tree_state": b.tree,
			"build_date": b.date, "go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": platform,
		},
	}).Set(1)
	factory.NewGauge(prometheus.GaugeOpts{
		Name: "nftproxy_build_info", Help: "Always 1; the labels are the version.",
		ConstLabels: prometheus.Labels{"version": b.version, "revision": b.commit, "go_version": runtime.Version()},
	}).Set(1)
}

const platform = runtime.GOOS + "/" + runtime.GOARCH
