package files

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	brokenService = "kind: Service\nspec: ["
	otherKind     = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"
)

// TestIsolation: 12.82. What a file is used for after a series of contents of the
// directory, and the problems that are reported, in one process and in a new one for each step.
func TestIsolation(t *testing.T) {
	for _, c := range isolationCases() {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			running := &Reader{Paths: []string{dir}, Isolation: NewIsolation(nil)}
			restarted := &Reader{Paths: []string{dir}}
			kept := &Kept{filepath.Join(t.TempDir(), "valid")}
			for _, step := range c.steps {
				apply(t, dir, step)
				restarted.Isolation = NewIsolation(kept)
				for _, f := range []*Reader{running, restarted} {
					if in, err := f.Load(); err != nil || strings.Contains(in.Warnings.Error(), "not kept") {
						t.Fatalf("%+v, %v", in, err)
					}
				}
			}
			restarted.Isolation = NewIsolation(kept)
			t.Run("running", func(t *testing.T) { c.check(t, running) })
			t.Run("restarted", func(t *testing.T) { c.check(t, restarted) })
		})
	}
}

// check checks what a reader uses, and what a dry run uses beside it.
func (c *isolationCase) check(t *testing.T, f *Reader) {
	in, err := f.Load()
	if err != nil {
		t.Fatal("(12.82)", err)
	}
	if got := sortedNames(in); got != c.want {
		t.Errorf("(12.82) Services %q, want %q", got, c.want)
	}
	if got := in.Unused.Error(); !strings.Contains(got, c.problem) || (got == "") != (c.problem == "") {
		t.Errorf("(12.82) problems %q, want %q", got, c.problem)
	}
	like, err := (&Reader{Paths: f.Paths, InForce: f.Isolation.InForce()}).Load()
	if err != nil {
		t.Fatal("(12.86) a dry run:", err)
	}
	if got := sortedNames(like); got != c.want {
		t.Errorf("(12.86) Services of a dry run: %q, want %q", got, c.want)
	}
	if got := like.Warnings.Error(); !strings.Contains(got, "as in the running nftproxy") != (c.problem == "") {
		t.Errorf("(12.86) warnings of a dry run: %q", got)
	}
}

// sortedNames returns the names of the Services of an input.
func sortedNames(in *Input) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(names(in)))), " ")
}

// isolationCase is what is used of the files of a directory after some changes.
type isolationCase struct {
	name    string
	steps   []map[string]string // contents by file; "-" removes a file
	want    string              // names of Services at the end
	problem string              // part of the last problems; empty: none
}

func isolationCases() []isolationCase {
	a, b := service("a", "10.96.0.1"), service("b", "10.96.0.2")
	duplicates := map[string]string{"a.yaml": a}
	for i := range maxTried + 4 {
		duplicates[fmt.Sprintf("c%d.yaml", i)] = a
	}
	return []isolationCase{
		{"valid", []map[string]string{{"a.yaml": a, "b.yaml": b}}, "a b", ""},
		{"empty directory", []map[string]string{{}}, "", ""},
		{"the last file is removed", []map[string]string{{"a.yaml": a}, {"a.yaml": "-"}}, "", ""},
		{"broken from the start", []map[string]string{{"a.yaml": brokenService, "b.yaml": b}}, "b", "a.yaml: "},
		{"broken, alone", []map[string]string{{"a.yaml": brokenService}}, "", "(the file is left out)"},
		{"broken later", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": brokenService}}, "a b", "(its last valid content stays in use)"},
		{"emptied", []map[string]string{{"a.yaml": a}, {"a.yaml": ""}}, "a", "the file is empty"},
		{"of other kinds", []map[string]string{{"a.yaml": a}, {"a.yaml": otherKind}}, "a", "only 1 object of other kinds"},
		{"too large from the start (12.86)", []map[string]string{{"a.yaml": tooLarge, "b.yaml": b}}, "b", "a.yaml: is larger than 64 MiB: split it into several files (the file is left out)"},
		{"too large later (12.86)", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": tooLarge}}, "a b", "a.yaml: is larger than 64 MiB: split it into several files (its last valid content stays in use)"},
		{"with a large object (12.86)", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": manyValues}}, "a b", "a.yaml: document 1 (line 1): the object has more than 250000 lines and commas (its last valid content stays in use)"},
		{"no text (12.86)", []map[string]string{{"a.yaml": a}, {"a.yaml": "\x00"}}, "a", "a.yaml: line 1 holds a NUL: the file is no text"},
		{"others follow", []map[string]string{{"a.yaml": a}, {"a.yaml": brokenService}, {"b.yaml": b}}, "a b", "a.yaml: "},
		{"removed while broken", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": brokenService}, {"a.yaml": "-"}}, "b", ""},
		{"back after it was removed", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": "-"}, {"a.yaml": brokenService}}, "b", "(the file is left out)"},
		{"repaired", []map[string]string{{"a.yaml": a}, {"a.yaml": brokenService}, {"a.yaml": b}}, "b", ""},
		{"duplicate: the newcomer is left out", []map[string]string{{"b.yaml": b}, {"a.yaml": b + "---\n" + a}}, "b", "a.yaml: document 1 (line 1): Service default/b: is defined twice"},
		{"duplicate: the changed one is as before", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": b}}, "a b", "a.yaml: "},
		{"duplicate of a broken one", []map[string]string{{"b.yaml": b}, {"a.yaml": b, "b.yaml": brokenService}}, "b", "a.yaml: document 1 (line 1): Service default/b: is defined twice"},
		{"duplicate from the start", []map[string]string{{"a.yaml": a, "b.yaml": a + "---\n" + b}}, "a", "b.yaml: "},
		{"a pool and its user", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}}, "web", ""},
		{"a pool that is missing from the start", []map[string]string{{"a.yaml": a, "b.yaml": pooled}}, "a", `b.yaml: document 1 (line 4): Balance web: backends[0].servers: "app" is not the name of an object of kind Servers`},
		{"a broken pool", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"a.yaml": strings.Replace(pool, "10.0.0.1", "10.0.0.l", 1)}}, "web", `a.yaml: document 1 (line 3): Servers app: servers[0]: "10.0.0.l" is not an IP address`},
		{"a pool that is removed", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"a.yaml": a}}, "web", "b.yaml: document 1 (line 1) needs: backends[0].servers: "},
		{"a pool whose file is removed", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"a.yaml": "-"}}, "web", "b.yaml: document 1 (line 1) needs it: put it back, or change that first (its last valid content stays in use)"},
		{"a pool that is removed with its user", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"a.yaml": "-", "b.yaml": b}}, "b", ""},
		{"a pool that is renamed with its user", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"a.yaml": strings.ReplaceAll(pool, "app", "new"), "b.yaml": strings.ReplaceAll(pooled, "app", "new")}}, "web", ""},
		{"defaults", []map[string]string{{"a.yaml": "kind: Defaults\ncheck: tcp\n", "b.yaml": pooled, "c.yaml": pool}}, "web", ""},
		{"defaults twice", []map[string]string{{"a.yaml": "kind: Defaults\n", "b.yaml": pooled, "c.yaml": pool}, {"d.yaml": "kind: Defaults\n"}}, "web", "d.yaml: document 1 (line 1): Defaults: are given twice for this directory, first in "},
		{"defaults that make a Balance invalid", []map[string]string{{"a.yaml": pool, "b.yaml": pooled}, {"c.yaml": "kind: Defaults\nclients: 2001:db8::/32\n"}}, "web", "c.yaml: has changed what Balance web in "},
		{"defaults beside a broken file", []map[string]string{{"b.yaml": strings.ReplaceAll(pooled, "{servers: app, port: 8080}", "[10.1.1.1:8080]")}, {"b.yaml": brokenService}, {"a.yaml": "kind: Defaults\ncheck: tcp\n"}}, "web", "b.yaml: "},
		{"broken while another is a duplicate", []map[string]string{{"a.yaml": a, "b.yaml": b}, {"a.yaml": b, "b.yaml": brokenService}, {"a.yaml": a + "---\n" + b}, {"a.yaml": a}}, "a b", "b.yaml: "},
		{"a new file is broken, another has the same object", []map[string]string{{"a.yaml": a + "---\n" + brokenService, "b.yaml": a}}, "a", "a.yaml: document 2"},
		{"a pool after its user, beside a duplicate", []map[string]string{{"a.yaml": pooled, "b.yaml": pool, "c.yaml": pool}}, "web", "c.yaml: "},
		{"more duplicates than are tried one by one", []map[string]string{{"b.yaml": b}, duplicates}, "a b", "c19.yaml: "},
		{"moved to another file", []map[string]string{{"a.yaml": a}, {"a.yaml": "-", "b.yaml": a}}, "a", ""},
	}
}

const (
	pool   = "kind: Servers\nname: app\nservers: [10.0.0.1, 10.0.0.2:81]\n"
	pooled = "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: {servers: app, port: 8080}\n"
)

// tooLarge stands for the content of a sparse file that is too large to be read.
const tooLarge = "too large"

var manyValues = "kind: Service\nspec: [" + strings.Repeat("a,", budget.FileValues+1) + "]\n"

// apply changes the files of a directory.
func apply(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if text == tooLarge {
			write(t, path, "")
			check(t, os.Truncate(path, budget.FileSize+1))
		} else if text != "-" {
			write(t, path, text)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInForce: 11.25, 12.86. What a process says about files that it does not use as they are: their
// objects, and nothing else of them. A copy of such a file stands for it, until it is edited.
func TestInForce(t *testing.T) {
	dir := t.TempDir()
	f := &Reader{Paths: []string{dir}, Isolation: NewIsolation(nil)}
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: aHVudGVyMg==}\n"
	balance := "kind: Balance\nname: b\nlisten: 192.0.2.1:80\nbackends: [10.1.1.1:8080]\n"
	apply(t, dir, map[string]string{"a.yaml": "# a comment\n" + service("a", "10.96.0.1") + "---\n" + secret + "---\n" + balance})
	before, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, dir, map[string]string{"a.yaml": brokenService})
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	in := f.Isolation.InForce()
	if len(in) != 1 || in[0].Path != filepath.Join(dir, "a.yaml") || len(in[0].Sum) != 64 || in[0].Problem == "" {
		t.Fatalf("%+v", in)
	}
	if text := string(in[0].Objects); strings.Contains(text, "aHVudGVyMg") || strings.Contains(text, "comment") || !strings.Contains(text, `"kind":"Balance"`) {
		t.Errorf("objects %s", text)
	}
	copied := t.TempDir()
	apply(t, copied, map[string]string{"a.yaml": brokenService})
	like, err := (&Reader{Paths: []string{copied}, InForce: in}).Load()
	if err != nil || !reflect.DeepEqual(like.Snapshot, before.Snapshot) {
		t.Errorf("%v, %+v, want %+v", err, like, before.Snapshot)
	}
	apply(t, copied, map[string]string{"a.yaml": brokenService + " "})
	if like, err := (&Reader{Paths: []string{copied}, InForce: in}).Load(); err == nil {
		t.Errorf("another mistake is used: %+v", like)
	}
	apply(t, copied, map[string]string{"a.yaml": "-", "z.yaml": brokenService})
	if like, err := (&Reader{Paths: []string{copied}, InForce: in}).Load(); err == nil {
		t.Errorf("a file of another name is used: %+v", like)
	}
}

// TestIsolationNeedsPaths: 12.82, a path that does not exist is an error of the whole
// input: it may be misspelt, or not be mounted yet.
func TestIsolationNeedsPaths(t *testing.T) {
	f := &Reader{Paths: []string{filepath.Join(t.TempDir(), "missing")}, Isolation: NewIsolation(nil)}
	if in, err := f.Load(); err == nil {
		t.Errorf("loaded %+v", in)
	}
}

// TestKeptDamaged: what is cut off is not used, and what cannot be written is a
// warning.
func TestKeptDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, service("a", "10.96.0.1"))
	kept := &Kept{filepath.Join(dir, "state")}
	f := &Reader{Paths: []string{dir}, Isolation: NewIsolation(kept)}
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(kept.pathOf(path), 3); err != nil {
		t.Fatal(err)
	}
	write(t, path, brokenService)
	f.Isolation = NewIsolation(kept)
	if in, err := f.Load(); err != nil || names(in) != "" || !strings.Contains(in.Unused.Error(), leftOut) {
		t.Errorf("%+v, %v", in, err)
	}

	if err := os.RemoveAll(kept.Dir); err != nil {
		t.Fatal(err)
	}
	write(t, kept.Dir, "no directory")
	write(t, path, service("a", "10.96.0.1"))
	f.Isolation = NewIsolation(kept)
	if in, err := f.Load(); err != nil || names(in) != "a" || !strings.Contains(in.Warnings.Error(), "is not kept for the next start") {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestKeptByOlder: what versions 0.1 and 0.2 have kept, the latter compressed, is used after an upgrade
// while the file has a mistake, and is readable then.
func TestKeptByOlder(t *testing.T) {
	for _, packed := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.yaml")
		write(t, path, brokenService)
		kept := &Kept{filepath.Join(dir, "state")}
		check(t, os.Mkdir(kept.Dir, 0o700))
		plain := path + "\n" + service("a", "10.96.0.1")
		saved := plain
		if packed { // in pieces
			saved = gzipped(t, path+"\n") + gzipped(t, service("a", "10.96.0.1"))
		}
		write(t, kept.pathOf(path), saved)
		for range 2 {
			f := &Reader{Paths: []string{dir}, Isolation: NewIsolation(kept)}
			if in, err := f.Load(); err != nil || names(in) != "a" || !strings.Contains(in.Unused.Error(), lastValid) {
				t.Errorf("packed %t: %+v, %v", packed, in, err)
			}
		}
		if text, err := os.ReadFile(kept.pathOf(path)); err != nil || string(text) != plain {
			t.Errorf("packed %t: %q is kept, want %q (%v)", packed, text, plain, err)
		}
	}
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	check(t, errors.Join(err, w.Close()))
	return b.String()
}

// TestKeptStays: content that a process has kept is not written again by the next one.
func TestKeptStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, service("a", "10.96.0.1"))
	kept := &Kept{filepath.Join(dir, "state")}
	written := func() os.FileInfo {
		t.Helper()
		_, err := (&Reader{Paths: []string{dir}, Isolation: NewIsolation(kept)}).Load()
		check(t, err)
		info, err := os.Stat(kept.pathOf(path))
		check(t, err)
		return info
	}
	first := written()
	if second := written(); !os.SameFile(first, second) {
		t.Error("the same content was written again")
	}
	write(t, path, service("a", "10.96.0.2"))
	if third := written(); os.SameFile(first, third) {
		t.Error("new content was not written")
	}
}

// TestFollowIsolated: 12.82. The source reports what it cannot use, is up to date
// otherwise, and logs each change once.
func TestFollowIsolated(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a", "10.96.0.1"))
	write(t, filepath.Join(dir, "b.yaml"), brokenService)
	var log netlab.LogBuffer
	s := Follow(&Reader{Paths: []string{dir}, Isolation: NewIsolation(nil)}, nil, "node-1", slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		if _, err := s.Load(); err != nil {
			t.Fatal(err)
		}
	}
	if state := s.State(); state.Err == nil || state.LastSuccess.IsZero() || strings.Count(log.String(), "some files cannot be used") != 1 {
		t.Errorf("%+v, %s", state, log.String())
	}
	write(t, filepath.Join(dir, "b.yaml"), service("b", "10.96.0.2"))
	u, err := s.Load()
	if state := s.State(); err != nil || state.Err != nil || len(u.Services) != 1 || strings.Count(log.String(), "all files usable again") != 1 {
		t.Errorf("%+v, %v, %+v, %s", u, err, state, log.String())
	}
}

// TestLeftOutAtStart: 12.82, 14.25. Of a file that was left out when the files were read first,
// the kernel may have rules of an earlier run: updates are partial until the file can be
// used, or is gone. One that appears later with a mistake has none.
func TestLeftOutAtStart(t *testing.T) {
	dir := t.TempDir()
	a, b := service("a", "10.96.0.1"), service("b", "10.96.0.2")
	duplicates := map[string]string{"a.yaml": a}
	for i := range maxTried + 4 {
		duplicates[fmt.Sprintf("c%d.yaml", i)] = a
	}
	apply(t, dir, map[string]string{"a.yaml": brokenService, "b.yaml": b})
	f := &followed{files: &Reader{Paths: []string{dir}, Isolation: NewIsolation(nil)}, unreadable: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	for _, step := range []struct {
		change map[string]string
		want   bool
	}{
		{nil, true}, {map[string]string{"c.yaml": brokenService}, true}, {map[string]string{"a.yaml": a}, false},
		{map[string]string{"a.yaml": brokenService}, false},
	} {
		apply(t, dir, step.change)
		u, err := f.Load()
		if err != nil || u.Partial != step.want {
			t.Errorf("after %v: partial %v, %v", step.change, u.Partial, err)
		}
	}
}
