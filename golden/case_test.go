package golden

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source"
)

var update = flag.Bool("update", false, "rewrite the results in the golden files")

// golden is one golden file, with its input decoded.
type golden struct {
	path    string
	archive *txtar.Archive
	config  model.Config
	input   *model.Snapshot
	changed *model.Snapshot // nil: no change
	flags   model.Config    // of the change
}

// forEach runs f for every golden file.
func forEach(t *testing.T, f func(*testing.T, *golden)) {
	t.Helper()
	paths, err := filepath.Glob("*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find golden files: %d, %v", len(paths), err)
	}
	for _, p := range paths {
		t.Run(strings.TrimSuffix(p, ".txtar"), func(t *testing.T) {
			t.Parallel()
			f(t, read(t, p))
		})
	}
}

func read(t *testing.T, path string) *golden {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{path: path, archive: a}
	g.config = parseFlags(t, string(g.section("flags")))
	g.input = load(t, g.section("input.yaml"))
	if b := g.section("changed.yaml"); b != nil {
		g.changed, g.flags = load(t, b), g.config
	}
	if b := g.section("changed.flags"); b != nil {
		g.changed, g.flags = g.input, parseFlags(t, string(b))
	}
	return g
}

func (g *golden) section(name string) []byte {
	for _, f := range g.archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// check compares a section with what came out, or rewrites it.
func (g *golden) check(t *testing.T, name, got string) {
	t.Helper()
	if want := string(g.section(name)); got != want && !*update {
		t.Errorf("%s: %s differs; rewrite with \"make golden UPDATE=1\" if that is right (-want +got):\n%s",
			g.path, name, cmp.Diff(want, got))
	}
	for i := range g.archive.Files {
		if g.archive.Files[i].Name == name {
			g.archive.Files[i].Data = []byte(got)
			return
		}
	}
	if got != "" {
		g.archive.Files = append(g.archive.Files, txtar.File{Name: name, Data: []byte(got)})
	}
}

// save writes the file back if it changed and -update asks for it.
func (g *golden) save(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(g.path)
	if err != nil {
		t.Fatal(err)
	}
	if b := txtar.Format(g.archive); *update && !bytes.Equal(b, old) {
		if err := os.WriteFile(g.path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func load(t *testing.T, yaml []byte) *model.Snapshot {
	t.Helper()
	f := source.Files{Paths: []string{"-"}, Stdin: bytes.NewReader(yaml)}
	in, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return in.Snapshot
}

func (g *golden) render(s *model.Snapshot) *render.Ruleset {
	return render.Render(model.Resolve(s, g.config))
}

func text(t *testing.T, rs *render.Ruleset) string {
	t.Helper()
	var b strings.Builder
	if err := rs.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// shuffle changes the order of everything in which order means nothing.
func shuffle(s *model.Snapshot) *model.Snapshot {
	mix := func(n int, swap func(i, j int)) { rand.Shuffle(n, swap) }
	mix(len(s.Services), func(i, j int) { s.Services[i], s.Services[j] = s.Services[j], s.Services[i] })
	mix(len(s.Slices), func(i, j int) { s.Slices[i], s.Slices[j] = s.Slices[j], s.Slices[i] })
	mix(len(s.ServiceCIDRs), func(i, j int) { s.ServiceCIDRs[i], s.ServiceCIDRs[j] = s.ServiceCIDRs[j], s.ServiceCIDRs[i] })
	for _, svc := range s.Services {
		mix(len(svc.Ports), func(i, j int) { svc.Ports[i], svc.Ports[j] = svc.Ports[j], svc.Ports[i] })
	}
	for _, sl := range s.Slices {
		mix(len(sl.Hosts), func(i, j int) { sl.Hosts[i], sl.Hosts[j] = sl.Hosts[j], sl.Hosts[i] })
		mix(len(sl.Ports), func(i, j int) { sl.Ports[i], sl.Ports[j] = sl.Ports[j], sl.Ports[i] })
	}
	return s
}

// TestRender compares the rules, the notices and the plan of each case.
func TestRender(t *testing.T) {
	forEach(t, func(t *testing.T, g *golden) {
		routing := model.Resolve(g.input, g.config)
		var notices strings.Builder
		for _, n := range routing.Notices {
			notices.WriteString(n.String() + "\n")
		}
		rs := render.Render(routing)
		g.check(t, "notices", notices.String())
		g.check(t, "rules.nft", g.shown(t, rs))
		if g.changed != nil {
			var plan strings.Builder
			after := render.Render(model.Resolve(g.changed, g.flags))
			if err := apply.Diff(rs, apply.Settle(rs, after)).Print(&plan, false); err != nil {
				t.Fatal(err)
			}
			g.check(t, "plan", plan.String())
		}
		g.save(t)
	})
}

// TestOrder proves that the order of objects and of what they list does not
// show in the rules.
func TestOrder(t *testing.T) {
	forEach(t, func(t *testing.T, g *golden) {
		want := text(t, g.render(g.input))
		for range 5 {
			if got := text(t, g.render(shuffle(g.input))); got != want {
				t.Fatalf("shuffled input gives other rules (-want +got):\n%s", cmp.Diff(want, got))
			}
		}
	})
}
