package metrics

import (
	"runtime"
	"runtime/debug"
	"strings"
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
func (b build) export(m maker) {
	m.gauge("kubernetes_build_info", "Always 1; the labels are the version of nftproxy, not of Kubernetes.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform",
	).WithLabelValues(b.major, b.minor, b.version, b.commit, b.tree, b.date, runtime.Version(), runtime.Compiler, platform).Set(1)
	m.gauge("nftproxy_build_info", "Always 1; the labels are the version.", "version", "revision", "go_version").
		WithLabelValues(b.version, b.commit, runtime.Version()).Set(1)
}

const platform = runtime.GOOS + "/" + runtime.GOARCH
