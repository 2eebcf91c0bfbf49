package golden

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/proof"
)

var update = flag.Bool("update", false, "rewrite the results in the golden files")

// The files of the two kinds of cases.
const (
	goldens    = "*.txtar"
	behaviours = "behaviour/*.txtar"
)

// testCase is one file.
type testCase struct {
	path    string
	comment []byte
	phases  []*phase
}

// phase is an input and its results.
type phase struct {
	setup   []txtar.File // sections that hold the input
	results []txtar.File
	flags   flags
	others  []proof.Interval // that another program has added before
	input   *files.Input
	err     error // of the input
	router  *model.Router
	routing *model.Routing
	rules   *nft.Ruleset
}

// forEach runs f for every case of a kind.
func forEach(t *testing.T, kind string, f func(*testing.T, *testCase)) {
	t.Helper()
	paths, err := filepath.Glob(kind)
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	for _, p := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(p), ".txtar"), func(t *testing.T) {
			t.Parallel()
			c := read(t, p)
			f(t, c)
			if *update {
				c.save(t)
			}
		})
	}
}

// forEachGolden runs f for every golden case. Their inputs have no errors.
func forEachGolden(t *testing.T, f func(*testing.T, *testCase)) {
	t.Helper()
	forEach(t, goldens, func(t *testing.T, c *testCase) {
		for _, p := range c.phases {
			if p.err != nil {
				t.Fatal(p.err)
			}
		}
		f(t, c)
	})
}

// read reads a case. Flags and base.yaml hold for all phases that follow.
func read(t *testing.T, path string) *testCase {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &testCase{path: path, comment: a.Comment}
	p := &phase{}
	setup := map[string][]byte{}
	for _, f := range a.Files {
		name := sectionName(f)
		if name != "flags" && name != "base.yaml" && name != "others" && name != "input.yaml" {
			p.results = append(p.results, f)
			continue
		}
		again := slices.ContainsFunc(p.setup, func(f txtar.File) bool { return sectionName(f) == name })
		if again || len(p.results) > 0 {
			c.load(t, p, setup)
			p = &phase{}
		}
		p.setup = append(p.setup, f)
		setup[name] = f.Data
	}
	c.load(t, p, setup)
	return c
}

// parseIntervals reads lines of a set and its new interval, for example "service-cidrs 10.0.0.3-10.0.0.9".
func parseIntervals(t *testing.T, text string) (out []proof.Interval) {
	t.Helper()
	for line := range strings.Lines(text) {
		set, span, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, last, _ := strings.Cut(span, "-")
		out = append(out, proof.Interval{Set: set, First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)})
	}
	return out
}

// sectionName returns the name of a section without the title behind it.
func sectionName(f txtar.File) string {
	name, _, _ := strings.Cut(f.Name, ":")
	return name
}

func (c *testCase) load(t *testing.T, p *phase, setup map[string][]byte) {
	t.Helper()
	c.phases = append(c.phases, p)
	p.flags = parseFlags(t, string(setup["flags"]))
	p.others = parseIntervals(t, string(setup["others"]))
	delete(setup, "others")
	yaml := setup["input.yaml"]
	if base := setup["base.yaml"]; base != nil {
		yaml = slices.Concat(base, []byte("---\n"), yaml)
	}
	reader := files.Reader{Paths: []string{"-"}, Stdin: bytes.NewReader(yaml), ProxyName: p.flags.proxyName, Keep: true}
	if p.input, p.err = reader.Load(); p.err == nil {
		p.router = p.input.Snapshot.Route(p.flags.Config)
		p.routing = p.router.Routing()
		p.rules = render.Render(p.routing)
	}
}

// notices returns what is reported about the objects.
func (p *phase) notices() string {
	lines := p.input.Warnings.Lines()
	for _, n := range p.routing.Notices {
		lines = append(lines, n.String())
	}
	return strings.Join(append(lines, ""), "\n")
}

// result returns a section of the results, if it is there.
func (p *phase) result(name string) (text string, ok bool) {
	i := slices.IndexFunc(p.results, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		return "", false
	}
	return string(p.results[i].Data), true
}

// order is the order of new sections.
var order = []string{"notices", "rules.nft", "flows", "services", "plan"}

// check compares a section with the result, or rewrites it.
func (p *phase) check(t *testing.T, name, got string) {
	t.Helper()
	want, ok := p.result(name)
	if want == got {
		return
	}
	if !*update {
		t.Errorf("%s: %s differs; rewrite with \"make golden UPDATE=1\" if that is right (-want +got):\n%s",
			p.setup[len(p.setup)-1].Name, name, cmp.Diff(want, got))
	}
	if !ok {
		p.results = append(p.results, txtar.File{Name: name})
		slices.SortStableFunc(p.results, func(a, b txtar.File) int {
			return slices.Index(order, a.Name) - slices.Index(order, b.Name)
		})
	}
	p.results[slices.IndexFunc(p.results, func(f txtar.File) bool { return f.Name == name })].Data = []byte(got)
}

// save writes the file back if it changed.
func (c *testCase) save(t *testing.T) {
	t.Helper()
	a := &txtar.Archive{Comment: c.comment}
	for _, p := range c.phases {
		a.Files = append(append(a.Files, p.setup...), p.results...)
	}
	old, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	if b := txtar.Format(a); !bytes.Equal(b, old) {
		if err := os.WriteFile(c.path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func text(t *testing.T, rs *nft.Ruleset) string {
	t.Helper()
	var b strings.Builder
	if err := rs.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
