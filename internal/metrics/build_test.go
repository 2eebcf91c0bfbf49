package metrics

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuild(t *testing.T) {
	settings := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-03-01T12:00:00Z"}, {Key: "vcs.modified", Value: modified},
		}}
	}
	for _, c := range []struct {
		version string
		info    *debug.BuildInfo
		want    build
	}{
		{"v1.2.3", settings("false"), build{"v1.2.3", "1", "2", "abc", "clean", "2026-03-01T12:00:00Z"}},
		{"v0.10.0-3-gabc", settings("true"), build{"v0.10.0-3-gabc", "0", "10", "abc", "dirty", "2026-03-01T12:00:00Z"}},
		{"(devel)", nil, build{version: "(devel)"}},
	} {
		if diff := cmp.Diff(c.want, buildOf(c.version, c.info), cmp.AllowUnexported(build{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.version, diff)
		}
	}
}
