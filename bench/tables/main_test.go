package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRows: each file of results has a row, and make has the target of each row.
func TestRows(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range rows {
		if names[r.name] || names[r.kind] {
			t.Errorf("%s is in use", r.name)
		}
		names[r.name] = true
		if !regexp.MustCompile(`(?m)^` + r.target + `:`).Match(makefile) {
			t.Errorf("%s: make has no target %s", r.name, r.target)
		}
		for variable := range strings.FieldsSeq(regexp.MustCompile(`'[^']*'`).ReplaceAllString(r.full+" "+r.quick, "")) {
			name, _, _ := strings.Cut(variable, "=")
			if !strings.Contains(string(makefile), name) {
				t.Errorf("%s: make does not know %s", r.name, name)
			}
		}
		for _, path := range r.code {
			if path = strings.TrimPrefix(path, ":(glob)"); len(must(filepath.Glob("../../"+path))(t)) == 0 {
				t.Errorf("%s: there is no %s", r.name, path)
			}
		}
	}
	for _, path := range must(filepath.Glob("../../docs/performance/*.json"))(t) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.file == filepath.Base(path) }) {
			t.Errorf("no row measures %s", path)
		}
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// makefile measures in no time: it counts how often.
const makefile = `.PHONY: bench bench-sweep
bench bench-sweep:
	echo $@ $(RUNS) $(VERSION) >> measured
	test ! -e broken
	printf '{"versions": {"nftproxy": "%s"}}' $$(git rev-parse --short HEAD) > $(RESULTS)

bench-report:
	echo $@ >> measured
`

// TestMeasure: a row is skipped while its sources are those that its results are of, also
// with other commits. The others are measured when one fails.
func TestMeasure(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		for _, args := range [][]string{{"add", "."}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"}} {
			if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v\n%s", args, err, out)
			}
		}
	}
	measured := func(want string, args ...string) {
		t.Helper()
		write("measured", "")
		failed := run(t.Context(), append([]string{"-only", "nftproxy,sweep"}, args...))
		got := strings.ReplaceAll(string(must(os.ReadFile("measured"))(t)), "\n", ";")
		if got != want || (failed != nil) != (len(must(filepath.Glob("broken"))(t)) > 0) {
			t.Errorf("got %q, %v, want %q", got, failed, want)
		}
	}
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("VERSION", "v1")
	write("Makefile", makefile)
	write("cmd/main.go", "package main")
	write("bench/main.go", "package main")
	commit()
	measured("bench 3 v1;bench-sweep 3 v1;bench-report;")
	measured("bench-report;")
	write("cmd/main_test.go", "package main")
	write("docs/page.md", "changed")
	commit()
	measured("bench-report;")
	write("cmd/main.go", "package main // changed")
	write("broken", "")
	commit()
	measured("bench 7 v1;bench-sweep 7 v1;bench-report;", "-runs", "7")
	if err := os.Remove("broken"); err != nil {
		t.Fatal(err)
	}
	commit()
	measured("bench 3 v1;bench-sweep 3 v1;bench-report;")
	write("bench/main.go", "package main // changed")
	commit()
	measured("bench 3 v1;bench-sweep 3 v1;bench-report;")
}

// TestChoose: rows are chosen by name or kind, in their order.
func TestChoose(t *testing.T) {
	for names, want := range map[string]string{"sweep,nftproxy": "[nftproxy sweep]", "balancing": "[balancers balancers-virtual]"} {
		got, err := choose(names)
		var list []string
		for _, r := range got {
			list = append(list, r.name)
		}
		if fmt.Sprint(list) != want || err != nil {
			t.Errorf("%s: got %v, %v, want %s", names, list, err, want)
		}
	}
	if _, err := choose("nothing"); err == nil {
		t.Error("an unknown row is no error")
	}
}
