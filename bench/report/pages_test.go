package report_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/bench/tree"
)

// tablesOf matches the marked tables of a page, of this package and of others.
var tablesOf = regexp.MustCompile(`(?s)<!-- bench:([a-z-]+) -->\n(.*?)<!-- /bench -->`)

// TestPages: no marked table of a page is empty; the tables of the results in the repository are
// what these give today; and what is of other rules than the source writes, or of another
// Kubernetes than e2e/tools pins, is in the page's list of accepted figures.
func TestPages(t *testing.T) {
	data, err := filepath.Glob("../../docs/performance/*.json")
	if err != nil || len(data) == 0 {
		t.Fatalf("results: %v, %v", data, err)
	}
	files, err := results.Read(data...)
	if err != nil {
		t.Fatal(err)
	}
	current, err := tree.Of()
	if err != nil {
		t.Fatal(err)
	}
	today := &report.Pages{Files: files, Tree: current}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	marked := 0
	for _, path := range append(pages, "../../README.md") {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		marked += checkPage(t, today, filepath.Base(path), string(page))
	}
	if marked < 20 {
		t.Errorf("%d tables: the marks have changed", marked)
	}
}

// checkPage returns the number of marked tables of a page.
func checkPage(t *testing.T, today *report.Pages, name, page string) int {
	t.Helper()
	tables := today.Tables(page)
	all := tablesOf.FindAllStringSubmatch(page, -1)
	for _, m := range all {
		got := strings.TrimSpace(m[2])
		want, ours := tables[m[1]]
		switch {
		case got == "" || ours && want == "":
			t.Errorf("%s: no results fill the table %q: measure them, or remove the mark", name, m[1])
		case ours && got != strings.TrimSpace(want):
			t.Errorf("%s: the table %q is not that of docs/performance: run make bench-report", name, m[1])
		}
	}
	for _, e := range today.Unaccepted(page) {
		t.Errorf("%s: %s; the source has rules %s and Kubernetes %s: measure it with make bench-tables, or accept it with make bench-report ACCEPT=%s WHY='REASON'",
			name, e, today.Tree.Layout, today.Tree.Kubernetes, e.Table)
	}
	return len(all)
}
