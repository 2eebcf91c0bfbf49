package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(beBusy) != "" {
		spin()
	}
	os.Exit(m.Run())
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// module makes a module in a repository the current directory: package a starts goroutines and depends on b,
// c starts none, and d is a suite.
func module(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "-buildvcs=false")
	write(t, "go.mod", "module m\n\ngo 1.24\n")
	write(t, "a/a.go", "package a\n\nimport \"m/b\"\n\nfunc F() { go b.F() }\n")
	write(t, "a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { F() }\n")
	write(t, "b/b.go", "package b\n\nfunc F() {}\n")
	write(t, "c/c.go", "package c\n")
	write(t, "c/c_test.go", "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) {}\n")
	write(t, "d/d_test.go", "package d\n\nimport \"testing\"\n\nfunc TestD(t *testing.T) {}\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// often runs the command, and returns what it prints.
func often(t *testing.T, args ...string) (clean bool, out string) {
	t.Helper()
	var b strings.Builder
	all := append([]string{"-runs", "3", "-suite-runs", "2", "-load", "1", "-race=false", "-results", "often.json", "-outputs", "outputs"}, args...)
	clean, err := run(t.Context(), append(all, "m/a", "m/c", "--", "m/d"), &b)
	if err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	return clean, b.String()
}

func wantIn(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// Packages with goroutines run, others do not, and suites do. What has run does not run again until its files
// change. The end says that something changed on which it depends.
func TestOften(t *testing.T) {
	module(t)
	clean, out := often(t)
	if !clean {
		t.Error("it is not clean")
	}
	wantIn(t, out, "2 of 2 packages have changed or lack runs; 1 busy processes", "a  run 3 of 3, ", "d  run 2 of 2, ", "-shuffle=", " left\n",
		"5 runs of 2 packages, 0 failed")
	_, out = often(t)
	wantIn(t, out, "0 of 2 packages", "5 runs of 2 packages")
	_, out = often(t, "-runs", "4")
	wantIn(t, out, "1 of 2 packages", "a  run 4 of 4, ")
	if strings.Contains(out, "run 3 of 4") {
		t.Errorf("runs are made again:\n%s", out)
	}
	write(t, "b/b.go", "package b\n\nfunc F() { println() }\n")
	_, out = often(t)
	wantIn(t, out, "0 of 2 packages", "packages whose dependencies have changed since: 1")
	write(t, "a/a.go", "package a\n\nimport \"m/b\"\n\nfunc F() { go b.F(); b.F() }\n")
	_, out = often(t, "-only", "d")
	wantIn(t, out, "0 of 2 packages")
	_, out = often(t)
	wantIn(t, out, "1 of 2 packages", "a  run 1 of 3, ", "a  run 3 of 3, ")
	text, err := os.ReadFile("often.json")
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, string(text), `{"package":"a","first":"`, `-dirty","commit":"`, `-dirty","hash":"`, `"built":"`, `"load":1,"runs":3,"failures":0,`, `"earlierRuns":4`)
	if left, _ := filepath.Glob("outputs/*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// Packages with goroutines are printed, and none runs.
func TestList(t *testing.T) {
	module(t)
	var out strings.Builder
	if clean, err := run(t.Context(), []string{"-list", "m/c", "m/a", "m/d"}, &out); err != nil || !clean || out.String() != "m/a\n" {
		t.Errorf("%q, %v, %v", &out, clean, err)
	}
	if _, err := os.Stat("test/often.json"); !os.IsNotExist(err) {
		t.Errorf("a file of results is there: %v", err)
	}
}

// The file of results, which each run changes, does not make the commit another one.
func TestCommitOfResults(t *testing.T) {
	module(t)
	often(t)
	for _, args := range [][]string{{"add", "often.json"}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "results"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	often(t, "-runs", "4") // changes the file
	often(t, "-runs", "5")
	text, err := os.ReadFile("often.json")
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, string(text), `"runs":5,`)
	if strings.Contains(string(text), "dirty") {
		t.Errorf("the results change the commit:\n%s", text)
	}
}

// A failure is counted, its output is kept, and it stays until the sources change.
func TestFailures(t *testing.T) {
	module(t)
	write(t, "d/testdata/says", "seven is not eight")
	write(t, "d/d_test.go", "package d\n\nimport (\"testing\"; \"os\")\n\nfunc TestD(t *testing.T) { b, _ := os.ReadFile(\"testdata/says\"); if len(b) > 0 { t.Fatal(string(b)) } }\n")
	clean, out := often(t)
	if clean {
		t.Error("it is clean")
	}
	wantIn(t, out, "d  run 2 of 2, ", "FAILED: ", "5 runs of 2 packages, 2 failed")
	logs, _ := filepath.Glob("outputs/d-*.log")
	if len(logs) != 2 {
		t.Fatalf("outputs are %v", logs)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, string(text), "seven is not eight", "-test.shuffle")
	wantIn(t, out, logs[0])
	if clean, out = often(t); clean {
		t.Errorf("a failure is forgotten:\n%s", out)
	}
	write(t, "d/testdata/says", "")
	if clean, out = often(t); !clean {
		t.Errorf("a failure of other sources counts:\n%s", out)
	}
}

// Each of these sources makes a package one to run often.
func TestIsConcurrent(t *testing.T) {
	t.Chdir(t.TempDir())
	for body, want := range map[string]bool{
		"go f()":                               true,
		"g.Go(f)":                              true,
		"t.Parallel()":                         true,
		"<-time.After(1)":                      true,
		"time.AfterFunc(1, f)":                 true,
		"context.WithTimeout(c, 1)":            true,
		"synctest.Test(t, f)":                  true,
		"await.Until(t, f)":                    true,
		"parallel.Spread(9, 1, f)":             true,
		"httptest.NewServer(h)":                true,
		"time.Now()":                           false,
		"time.Duration(1).String()":            false,
		"x.After(y)":                           false,
		"context.WithValue(c, key, v)":         false,
		"f(\"go f()\") /* go time.Sleep(1) */": false,
	} {
		write(t, "a.go", fmt.Sprintf("package a\n\nfunc F() { %s }\n", body))
		got, err := listed{GoFiles: []string{"a.go"}}.isConcurrent()
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

// What takes least comes first.
func TestOrder(t *testing.T) {
	all := []suite{{name: "many files", wanted: 3}, {name: "slow", wanted: 3}, {name: "few files", wanted: 3}, {name: "fast", wanted: 3}}
	b := &book{records: map[string]*record{"slow": {Runs: 1, Seconds: 20}, "fast": {Runs: 2, Seconds: 4}}, each: make(map[string]float64)}
	b.update(all)
	s := &session{book: b, left: all}
	s.sortByCost()
	var got []string
	for _, p := range s.left {
		got = append(got, p.name)
	}
	if want := []string{"few files", "many files", "fast", "slow"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The time left is that of earlier runs, and for packages without any, that of the others on average.
func TestEstimate(t *testing.T) {
	all := []suite{{name: "a", wanted: 20, hash: "1"}, {name: "b", wanted: 20, hash: "1"}, {name: "c", wanted: 10}}
	b := &book{records: map[string]*record{"a": {Hash: "1", Runs: 10, Seconds: 20}, "b": {Hash: "0", Runs: 1, Seconds: 4}}, each: make(map[string]float64)}
	b.update(all)
	s := &session{options: options{parallel: 2}, book: b, left: all}
	if got := s.estimate().Seconds(); got != (10*2+20*4+10*3)/2 {
		t.Errorf("the time left is %v s", got)
	}
}
