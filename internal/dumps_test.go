package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lists are the functions of the library whose result lacks entries if the list changes while the
// kernel dumps it.
var lists = regexp.MustCompile(`^(Link|Addr|Route|Rule|Neigh|NeighProxy|Qdisc|Class|Filter|ConntrackTable)List`)

// TestCompleteLists: what the kernel lists is asked for again while it changes, so that an
// interface that comes or goes fails neither the program nor a test.
func TestCompleteLists(t *testing.T) {
	found := 0
	for _, file := range files(t, "*.go") {
		if file == "e2e/soak/neighbour_test.go" { // plays another program, whose lists may fail
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), "../"+file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := calledName(call)
			if slices.Contains([]string{"netlinkio.List", "netlinkio.Complete", "List"}, name) {
				found++
				return false
			}
			if library, f, _ := strings.Cut(name, "."); library == "netlink" && lists.MatchString(f) {
				t.Errorf("%s: a list of %s may be incomplete: call it with netlinkio.List", file, name)
			}
			return true
		})
	}
	if found < 10 {
		t.Errorf("%d lists found: the test does not know how they are asked for", found)
	}
}

// calledName returns the name of a function that is called, with its package; empty: it has none.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}
