package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// timers are the functions of package time that let time pass. In a bubble of testing/synctest
// that is no real time; outside of one, a test with them passes on a fast machine only, or is slow.
var timers = []string{"Sleep", "After", "AfterFunc", "NewTicker", "NewTimer", "Tick"}

// spans are the functions of testkit/await that let real time pass. Load on a real kernel needs them,
// and so the tests of test and e2e do.
var spans = []string{"Pace", "Span", "Ticks"}

// realTime are the files of tests that may let real time pass, and why.
var realTime = map[string]string{
	"internal/testkit/netlab/flow.go":      "the time of a dialer begins with its first packet, which no deadline of a context does",
	"internal/testkit/await/await.go":      "tests of sockets, files and processes wait here, for an event and with a deadline",
	"internal/feature/probe/bench_test.go": "a benchmark measures what checks take in some seconds",
	"internal/daemon/config_watch_test.go": "a change of a file must not end the watch: nothing happens that could be waited for",
	"cmd/nftproxy/drain_test.go":           "a command must not end before a connection does",
	"cmd/nftproxy/top_test.go":             "a client dials a Service at a steady pace, which top shows",
}

// TestSleeps: tests of all modules let time pass in bubbles alone, see [sleepsOf]. Tests of real
// sockets, files and processes wait for events with internal/testkit/await.
func TestSleeps(t *testing.T) {
	unused := maps.Clone(realTime)
	checked := 0
	for _, file := range files(t, "*.go") {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "internal/testkit/") && !strings.HasPrefix(file, "e2e/internal/") {
			continue
		}
		checked++
		found := sleepsOf(t, file, content(t, file))
		if _, ok := realTime[file]; ok && len(found) > 0 {
			delete(unused, file)
			continue
		}
		for _, line := range found {
			t.Errorf("%s outside of a bubble: run the test in synctest.Test, or wait for the event with internal/testkit/await", line)
		}
	}
	if checked < 500 {
		t.Errorf("only %d files", checked)
	}
	for _, file := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("%s lets no real time pass: take it out of the list", file)
	}
}

// sleepsOf returns the places of a file that let real time pass. A place is in a bubble if it is in
// a function literal passed to synctest.Test, or in a declared function that calls synctest.Wait:
// Wait panics outside of a bubble, so that no other test can call it.
func sleepsOf(t *testing.T, name, text string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	clock, bubbles, wait := importedAs(file, "time"), importedAs(file, "testing/synctest"), importedAs(file, module+"testkit/await")
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && calls(f, bubbles, "Wait") && !calls(f, bubbles, "Test") {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isOf(call.Fun, bubbles, "Test") {
				return false
			}
			if isOf(n, clock, timers...) || isOf(n, wait, spans...) && !forLoad(name) {
				found = append(found, fmt.Sprintf("%s: %s", set.Position(n.Pos()), types.ExprString(n.(ast.Expr))))
			}
			return true
		})
	}
	return found
}

// forLoad reports whether the tests of a file put load on a real kernel.
func forLoad(file string) bool {
	return strings.HasPrefix(file, "test/") || strings.HasPrefix(file, "e2e/")
}

// TestSleepsOf: which places the rule finds.
func TestSleepsOf(t *testing.T) {
	for _, c := range []struct{ name, code, want string }{
		{"a sleep", `func TestX(t *testing.T) { time.Sleep(1) }`, "time.Sleep"},
		{"a timer in a helper", `var late = time.AfterFunc`, "time.AfterFunc"},
		{"in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"before a bubble", `func TestX(t *testing.T) { <-time.After(1); synctest.Test(t, func(t *testing.T) { synctest.Wait() }) }`, "time.After"},
		{"a helper for bubbles", `func pass() { time.Sleep(1); synctest.Wait() }`, ""},
		{"no time passes", `var begin = time.Now()`, ""},
	} {
		found := sleepsOf(t, "x_test.go", "package x; import (\"testing/synctest\"; \"time\"); "+c.code)
		if got := strings.Join(found, "\n"); !strings.HasSuffix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	const paced = `package x; import "github.com/nftproxy/nftproxy/internal/testkit/await"; func wait() { await.Span(1); await.Until(nil, nil) }`
	for file, want := range map[string]int{"internal/x_test.go": 1, "cmd/x_test.go": 1, "test/x_test.go": 0, "e2e/soak/x_test.go": 0} {
		if found := sleepsOf(t, file, paced); len(found) != want {
			t.Errorf("a span in %s: %q", file, found)
		}
	}
	renamed := sleepsOf(t, "x_test.go", `package x; import clock "time"; func wait() { clock.Sleep(1) }`)
	if len(renamed) != 1 {
		t.Errorf("under another name: %q", renamed)
	}
}

// importedAs returns the name under which a file imports a package; "": it does not.
func importedAs(file *ast.File, path string) string {
	for _, i := range file.Imports {
		switch {
		case i.Path.Value != `"`+path+`"`:
		case i.Name != nil:
			return i.Name.Name
		default:
			return path[strings.LastIndex(path, "/")+1:]
		}
	}
	return ""
}

// isOf reports whether a node is one of these names of a package.
func isOf(n ast.Node, pkg string, names ...string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, s.Sel.Name) {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// calls reports whether a function calls one of a package.
func calls(f *ast.FuncDecl, pkg, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isOf(call.Fun, pkg, name)
		return !found
	})
	return found
}
