// Package sourcetest has what the tests of several packages below internal/source need:
// objects, and checks of what these packages promise.
package sourcetest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Check ends the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// IsPlain reports whether a text only adds lines to a terminal or a log when it is
// printed.
func IsPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// Seeds returns inputs in YAML: those of the goldens, the demo, and the tests of files. They are
// for packages below internal/source.
func Seeds(f testing.TB) [][]byte {
	f.Helper()
	var out [][]byte
	const tests = "internal/source/files/testdata/"
	for _, pattern := range []string{tests + "bad/*.yaml", tests + "good/*.yaml", tests + "good/*.json", "demo/*.yaml", "golden/*.txtar", "golden/behaviour/*.txtar"} {
		names, err := filepath.Glob(filepath.Join("../../..", pattern))
		if err != nil || len(names) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if !strings.HasSuffix(name, ".txtar") {
				out = append(out, text)
			}
			for _, section := range txtar.Parse(text).Files {
				if strings.Contains(section.Name, ".yaml") {
					out = append(out, section.Data)
				}
			}
		}
	}
	return out
}

// CheckRules renders a snapshot. The rules are printable, and one line for each
// thing that they hold.
func CheckRules(t testing.TB, s *model.Snapshot) {
	t.Helper()
	rs := render.Render(model.Resolve(s, model.Config{NodeName: "node-1"}))
	var b strings.Builder
	if err := rs.Text(&b); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), func(r rune) bool { return (r < ' ' || r > '~') && r != '\n' && r != '\t' }) {
		t.Errorf("the rules are no plain text: %q", b.String())
	}
	lines := make(map[string]bool)
	for line := range strings.Lines(b.String()) {
		lines[line] = true
	}
	for _, table := range rs.Tables {
		for _, set := range table.Sets {
			for i := range set.Elements {
				line := "\t\t\t" + set.ElementText(&set.Elements[i]) + ",\n"
				if strings.Count(line, `"`)%2 != 0 || !lines[line] {
					t.Errorf("an element is not one line: %q", line)
				}
			}
		}
	}
}

// CheckErrors checks that errors of files name the file and can be printed.
func CheckErrors(t testing.TB, err error) {
	t.Helper()
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) == 0 || err.Error() == "" {
		t.Fatalf("Load() = %#v", err)
	}
	for _, e := range all {
		if e.File == "" || !IsPlain(e.Error()) {
			t.Errorf("an error that names no file, or cannot be printed: %q", e.Error())
		}
	}
}

// Texts returns the findings as they are printed, warnings with a prefix.
func Texts(found []*manifest.FieldError) []string {
	var out []string
	for _, f := range found {
		text := f.Error()
		if f.Warning {
			text = "warning: " + text
		}
		out = append(out, text)
	}
	return out
}

// Describe prints the fields of a struct that are not zero, and the elements
// of a list, one a line. Hosts have a weight only where one is given.
func Describe(v any) string {
	r := reflect.Indirect(reflect.ValueOf(v))
	var b strings.Builder
	switch r.Kind() {
	case reflect.Slice:
		for i := range r.Len() {
			fmt.Fprintf(&b, "%+v\n", reflect.Indirect(r.Index(i)))
		}
	case reflect.Struct:
		for i := range r.NumField() {
			f := r.Field(i)
			if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
				continue
			}
			if _, prints := f.Interface().(fmt.Stringer); f.Kind() == reflect.Pointer && !prints {
				b.WriteString(Describe(f.Interface()))
				continue
			}
			fmt.Fprintf(&b, "%s %+v\n", r.Type().Field(i).Name, f)
		}
	}
	return strings.NewReplacer(" Drain:false Failing:false Priority:0 Weight:0}", "}", " CiliumWeight:false}", "}").Replace(b.String())
}

// CheckLookup checks what a source returns that has the Services a/web and a/dns, of which
// none has been loaded.
func CheckLookup(t testing.TB, s interface {
	Load() (*model.Update, error)
	Lookup([]model.ServiceName) map[model.ServiceName]model.ServiceState
}) {
	t.Helper()
	u, err := s.Load()
	Check(t, err)
	web, unknown := model.ServiceName{Namespace: "a", Name: "web"}, model.ServiceName{Namespace: "a", Name: "x"}
	all, some := s.Lookup(nil), s.Lookup([]model.ServiceName{web, unknown})
	if len(u.Services) != 2 || len(all) != 2 || len(some) != 1 || some[web].Service == nil || some[web].Service != all[web].Service {
		t.Errorf("%d Services; all are %v, some %v", len(u.Services), slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(some)))
	}
}

// CheckLog checks how many lines of a log hold all the words.
func CheckLog(t testing.TB, log string, want int, words ...string) {
	t.Helper()
	got := 0
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			got++
		}
	}
	if got != want {
		t.Errorf("%d lines of the log hold %q, want %d:\n%s", got, words, want, log)
	}
}
