package budget

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/budgets.md")

// TestLimits: each constant has a row, in the same order.
func TestLimits(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "budget.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants, rows []string
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			if c := s.(*ast.ValueSpec); c.Type == nil { // outcomes have one
				constants = append(constants, c.Names[0].Name)
			}
		}
	}
	for _, l := range Limits {
		rows = append(rows, l.Name)
		if l.Most <= 0 || l.What == "" || l.Of == "" || l.Unit == "" || l.Beyond == "" {
			t.Errorf("a limit without all fields: %+v", l)
		}
	}
	if !slices.Equal(constants, rows) {
		t.Errorf("constants %v\nrows      %v", constants, rows)
	}
}

// TestPage compares the table of docs/budgets.md with the limits.
func TestPage(t *testing.T) {
	const path, begin, end = "../../docs/budgets.md", "<!-- begin limits -->\n", "<!-- end limits -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	_, after, found := strings.Cut(rest, end)
	want := before + begin + "\n" + table() + "\n" + end + after
	switch {
	case !found:
		t.Fatalf("%s lacks %q or %q", path, begin, end)
	case want == string(page):
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table than the code: run go test ./internal/budget -update", path)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| limit | of | at most | beyond it |\n|---|---|---|---|\n")
	for _, l := range Limits {
		beyond := string(l.Beyond)
		if l.Effect != "" {
			beyond += ": " + l.Effect
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.What, l.Of, amount(l), beyond)
	}
	return b.String()
}

// amount returns for example "4,096 bytes" or "16 MiB".
func amount(l Limit) string {
	switch {
	case l.Unit == "bytes" && l.Most%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", l.Most>>20)
	case l.Unit == "bytes" && l.Most%(1<<10) == 0 && l.Most > 1<<14:
		return fmt.Sprintf("%d KiB", l.Most>>10)
	}
	digits := strconv.Itoa(l.Most)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + l.Unit
}
