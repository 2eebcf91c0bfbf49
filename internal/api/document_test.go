package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTroubleshooting: the page about symptoms has a row for every reason of a problem, and
// for no other.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Status reports a problem\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, c := range classes {
		if !strings.Contains(section, "\n| `"+string(c.reason)+"` | ") {
			t.Errorf("%s is not in docs/troubleshooting.md", c.reason)
		}
	}
	if n := strings.Count(section, "\n| `"); n != len(classes) {
		t.Errorf("docs/troubleshooting.md has %d reasons, and the report %d", n, len(classes))
	}
}

// TestReasonsAreExplained: every reason that the code has is explained: those of
// package model, and of checks of the machine.
func TestReasonsAreExplained(t *testing.T) {
	reasons := constants(t, "../model", "Reason")
	if len(reasons) < 30 {
		t.Fatalf("only %d reasons are found", len(reasons))
	}
	for _, r := range reasons {
		if !slices.ContainsFunc(classes, func(c explained) bool { return string(c.reason) == r }) {
			t.Errorf("the reason %s has no explanation", r)
		}
	}
}

// constants returns the values of the exported string constants of a type of a package.
func constants(t *testing.T, folder, name string) (out []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, constantsIn(t, file, name)...)
	}
	return out
}

func constantsIn(t *testing.T, file *ast.File, name string) (out []string) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !spec.Names[0].IsExported() {
			return true
		}
		of := ""
		if ident, ok := spec.Type.(*ast.Ident); ok {
			of = ident.Name
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && of == name && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, value)
		}
		return true
	})
	return out
}
