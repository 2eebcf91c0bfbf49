package report_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// tablesOf matches the marked tables of a page, of this package and of others.
var tablesOf = regexp.MustCompile(`(?s)<!-- bench:([a-z-]+) -->\n(.*?)<!-- /bench -->`)

// TestPages: no marked table of a page is empty, and those of the results in the repository
// are what these give today.
func TestPages(t *testing.T) {
	data, err := filepath.Glob("../../docs/performance/*.json")
	if err != nil || len(data) == 0 {
		t.Fatalf("results: %v, %v", data, err)
	}
	files, err := results.Read(data...)
	if err != nil {
		t.Fatal(err)
	}
	tables := report.Tables(files)
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
		for _, m := range tablesOf.FindAllStringSubmatch(string(page), -1) {
			marked++
			name, got := m[1], strings.TrimSpace(m[2])
			want, ours := tables[name]
			switch {
			case got == "" || ours && want == "":
				t.Errorf("%s: no results fill the table %q: measure them, or remove the mark", filepath.Base(path), name)
			case ours && got != strings.TrimSpace(want):
				t.Errorf("%s: the table %q is not that of docs/performance: run make bench-report", filepath.Base(path), name)
			}
		}
	}
	if marked < 20 {
		t.Errorf("%d tables: the marks have changed", marked)
	}
}
