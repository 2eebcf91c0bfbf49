package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nftproxy/nftproxy/internal/"

// TestLayers keeps imports pointing one way: what each package may reach,
// directly or not.
func TestLayers(t *testing.T) {
	for _, c := range []struct {
		pkg     string
		own     []string // of our packages
		foreign []string // path prefixes of other modules, nil: any
	}{
		{"model", nil, []string{}},
		{"manifest", []string{"terminal", "suggest"}, []string{"go.yaml.in/yaml/v3", "sigs.k8s.io/json"}},
		{"atomicfile", nil, []string{}},
		{"source", []string{"model", "terminal", "manifest", "suggest", "atomicfile"}, nil},
		{"nft", []string{"model"}, []string{}},
		{"render", []string{"model", "nft"}, []string{}},
		{"plan", []string{"model", "nft", "terminal"}, []string{}},
		{"changes", []string{"model", "nft", "plan", "terminal"}, []string{}},
		{"explain", []string{"model", "nft", "terminal"}, []string{}},
		{"drain", []string{"model", "manifest", "terminal", "suggest", "atomicfile"}, []string{"go.yaml.in/yaml/v3", "sigs.k8s.io/json"}},
		{"terminal", nil, []string{}},
		{"netlinkio", nil, []string{"github.com/mdlayher", "golang.org/x"}},
		{"kernel", []string{"model", "nft", "plan", "terminal", "netlinkio", "host"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"apply", []string{"model", "nft", "plan", "terminal", "netlinkio", "host", "kernel"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"agent", []string{"model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel", "apply"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"config", []string{"model", "terminal", "manifest", "host", "suggest"}, nil},
		{"events", []string{"model"}, nil},
		{"migrate", []string{"terminal"}, nil},
		{"serve", nil, []string{}},
		{"web", nil, []string{}},
		{"logwriter", nil, []string{}},
		{"systemd", []string{"terminal"}, []string{"github.com/coreos/go-systemd/v22/daemon", "golang.org/x/sys"}},
		{"health", []string{"model", "serve"}, []string{}},
		{"localhost", []string{"model"}, []string{}},
		{"probe", []string{"model", "terminal", "probe/checker"}, []string{"golang.org/x", "google.golang.org/protobuf"}},
		{"probe/checker", []string{"model", "terminal"}, []string{"golang.org/x", "google.golang.org/protobuf"}},
		{"describe", []string{"model", "nft", "render", "plan", "terminal", "suggest"}, []string{}},
		{"metrics", []string{"atomicfile", "model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel", "apply", "agent", "source", "manifest", "status", "suggest", "describe", "changes", "machine", "preflight", "takeover", "xtables", "localhost"}, nil},
		{"status", []string{"model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel", "apply", "agent", "suggest", "describe", "changes"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"live", []string{"model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel", "apply", "agent", "status", "suggest", "describe", "changes"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"top", []string{"model", "nft", "render", "plan", "terminal", "suggest", "describe", "changes", "netlinkio", "host", "kernel", "apply", "agent", "status", "live"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x",
			"charm.land/bubbletea", "github.com/charmbracelet", "github.com/clipperhouse", "github.com/lucasb-eyer", "github.com/mattn/go-runewidth",
			"github.com/muesli/cancelreader", "github.com/rivo/uniseg", "github.com/xo/terminfo"}},
		{"conntrack", []string{"model", "netlinkio"}, []string{"github.com/mdlayher", "golang.org/x"}},
		{"host", []string{"model"}, []string{"github.com/vishvananda", "golang.org/x"}},
		{"preflight", []string{"model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"xtables", []string{"netlinkio"}, []string{"github.com/mdlayher", "golang.org/x"}},
		{"machine", []string{"model", "nft", "render", "plan", "terminal", "netlinkio", "host", "kernel", "preflight", "takeover", "xtables"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
		{"takeover", []string{"netlinkio", "xtables", "terminal"}, []string{
			"github.com/google/nftables", "github.com/mdlayher", "github.com/vishvananda", "golang.org/x"}},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			t.Parallel()
			for _, dep := range dependencies(t, module+c.pkg) {
				own, isOwn := strings.CutPrefix(dep, module)
				switch {
				case isOwn && own != c.pkg && !slices.Contains(c.own, own):
					t.Errorf("%s reaches %s", c.pkg, own)
				case !isOwn && c.foreign != nil && !slices.ContainsFunc(c.foreign, func(p string) bool { return strings.HasPrefix(dep, p) }):
					t.Errorf("%s reaches %s", c.pkg, dep)
				}
			}
		})
	}
}

// dependencies returns what a package imports outside of the standard library.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}
