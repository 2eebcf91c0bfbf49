package behaviour

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source"
)

func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c := testCase{flags: parseFlags(t, "")}
			for _, f := range a.Files {
				name, title, _ := strings.Cut(f.Name, ":")
				if name == "input.yaml" {
					c.title = strings.TrimSpace(title)
				}
				c.section(t, strings.TrimSpace(name), f.Data)
			}
			c.finish(t)
		})
	}
}

// testCase is where a test stands in its file.
type testCase struct {
	base    []byte
	flags   flags
	title   string // of the input
	first   string // rules of the first input
	routing *model.Routing
	rules   *nft.Ruleset
	notices []string
	err     error // of the input, while no section has asked for it
}

// section does what a section asks for.
func (c *testCase) section(t *testing.T, name string, data []byte) {
	t.Helper()
	switch name {
	case "base.yaml":
		c.base = data
	case "flags":
		c.flags = parseFlags(t, string(data))
	case "input.yaml":
		c.finish(t)
		if c.load(data); c.first == "" {
			c.first = c.text(t)
		}
	case "want":
		c.finish(t)
		if c.err == nil {
			want := strings.TrimSpace(string(data))
			c.compare(t, name, want, fates(t, c.rules, want))
		}
	case "notices":
		c.compare(t, name, strings.TrimSpace(string(data)), strings.Join(c.notices, "\n"))
	case "rules":
		c.checkRules(t, strings.TrimSpace(string(data)))
	case "same":
		c.compare(t, name, c.first, c.text(t))
	case "error":
		c.checkError(t, strings.TrimSpace(string(data)))
	default:
		t.Fatalf("unknown section %q", name)
	}
}

func (c *testCase) load(data []byte) {
	yaml := data
	if c.base != nil {
		yaml = slices.Concat(c.base, []byte("---\n"), data)
	}
	files := source.Files{Paths: []string{"-"}, Stdin: bytes.NewReader(yaml), ProxyName: c.flags.proxyName}
	var in *source.Input
	if in, c.err = files.Load(); c.err != nil {
		return
	}
	c.routing = model.Resolve(in.Snapshot, c.flags.Config)
	c.rules = render.Render(c.routing)
	c.notices = in.Warnings
	for _, n := range c.routing.Notices {
		c.notices = append(c.notices, n.String())
	}
}

// finish fails if the input has an error that no section has asked for.
func (c *testCase) finish(t *testing.T) {
	t.Helper()
	if c.err != nil {
		t.Fatalf("input %q: %v", c.title, c.err)
	}
}

func (c *testCase) compare(t *testing.T, section, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("input %q: %s (-want +got):\n%s", c.title, section, diff)
	}
}

// text returns the rules as text.
func (c *testCase) text(t *testing.T) string {
	t.Helper()
	if c.err != nil {
		return ""
	}
	var b strings.Builder
	if err := c.rules.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// checkRules looks for lines, and for parts of lines that must not be there.
func (c *testCase) checkRules(t *testing.T, want string) {
	t.Helper()
	text := c.text(t)
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Trim(line, "\t,\n"))
	}
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if part, not := strings.CutPrefix(line, "! "); not && strings.Contains(text, part) {
			t.Errorf("input %q: the rules must not have: %s\n%s", c.title, part, text)
		} else if !not && !slices.Contains(lines, line) {
			t.Errorf("input %q: the rules lack: %s\n%s", c.title, line, text)
		}
	}
}

func (c *testCase) checkError(t *testing.T, want string) {
	t.Helper()
	if c.err == nil {
		t.Fatalf("input %q: no error, want %s", c.title, want)
	}
	for part := range strings.Lines(want) {
		if !strings.Contains(c.err.Error(), strings.TrimSpace(part)) {
			t.Errorf("input %q: error is\n%v\nwant in it: %s", c.title, c.err, part)
		}
	}
	c.err = nil
}
