package cluster

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// walkRow is the shape of a field that costs most.
type walkRow struct {
	field, shape string
	figures      walkFigures
	share        float64 // of a bound
}

var update = flag.Bool("update", false, "rewrite the table in docs/budgets.md")

// checkWalkPage checks that each field has a row in docs/budgets.md, or writes the rows. The
// figures depend on the machine.
func checkWalkPage(t *testing.T, fields []string, worst map[string]walkRow) {
	const path, begin, end = "../../../docs/budgets.md", "<!-- begin walk -->\n", "<!-- end walk -->"
	page, err := os.ReadFile(path)
	check(t, err)
	before, rest, _ := strings.Cut(string(page), begin)
	rows, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s lacks %q or %q", path, begin, end)
	}
	if *update {
		check(t, os.WriteFile(path, []byte(before+begin+"\n"+walkTable(fields, worst)+"\n"+end+after), 0o644))
		return
	}
	for _, f := range fields {
		if !strings.Contains(rows, "\n| "+f+" |") {
			t.Errorf("%s has no row for %s: run go test ./internal/source/cluster -run TestBudgetWalk -update", path, f)
		}
	}
	if n := strings.Count(rows, "\n| ") - 1; n != len(fields) {
		t.Errorf("%s has %d rows for %d fields: run go test ./internal/source/cluster -run TestBudgetWalk -update", path, n, len(fields))
	}
}

func walkTable(fields []string, worst map[string]walkRow) string {
	var b strings.Builder
	b.WriteString("| field | worst shape | elements | load | change | change of another Service | removal | memory | allocated |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range fields {
		r := worst[name]
		f := r.figures
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s | %s |\n", name, r.shape, f.elements,
			milliseconds(f.load), milliseconds(f.change), milliseconds(f.other), milliseconds(f.removal), megabytes(f.live), megabytes(f.allocated))
	}
	return b.String()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(max(0, n))/1e6) }
