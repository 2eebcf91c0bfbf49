package neighbours

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// verdict says how a neighbour and nftproxy get along.
type verdict string

const (
	works   verdict = "works"
	worksIf verdict = "works if"
	fails   verdict = "does not work"
)

// finding is a line of docs/compatibility.md.
type finding struct {
	Group     string  `json:"group"`     // a heading, such as "Firewalls"
	Neighbour string  `json:"neighbour"` // the other program, such as "firewalld"
	Version   string  `json:"version"`   // of the other program, empty for a setting
	Case      string  `json:"case"`      // what was tried
	Verdict   verdict `json:"verdict"`
	Note      string  `json:"note,omitempty"` // the condition of worksIf, the reason of fails
	Test      string  `json:"test"`           // that shows it
	Date      string  `json:"date"`
}

var found = struct {
	sync.Mutex
	findings map[string]finding // by test
}{findings: map[string]finding{}}

// finds reports what a test shows. A test that fails shows nothing.
func finds(t *testing.T, f finding) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		f.Test, f.Date = t.Name(), time.Now().UTC().Format(time.DateOnly)
		found.Lock()
		defer found.Unlock()
		found.findings[f.Test] = f
	})
}

// saveFindings merges the findings of this run into findings.json in the
// directory compatibility beside the document, and rewrites the tables of the
// document. It does nothing without a document.
func saveFindings(document string) error {
	if document == "" || len(found.findings) == 0 {
		return nil
	}
	file := filepath.Join(strings.TrimSuffix(document, filepath.Ext(document)), "findings.json")
	all, err := report.Merge(file, found.findings)
	if err != nil {
		return err
	}
	tables, err := tables(slices.Collect(maps.Values(all)))
	if err != nil {
		return err
	}
	return report.RewriteFile(document, map[string]string{"neighbours": tables})
}

// tables prints the findings, a table for each group.
func tables(all []finding) (string, error) {
	machine, err := results.ThisMachine()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Linux %s.\n", machine.Kernel)
	slices.SortFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Neighbour, b.Neighbour), cmp.Compare(a.Test, b.Test))
	})
	for i, f := range all {
		if i == 0 || f.Group != all[i-1].Group {
			fmt.Fprintf(&text, "\n### %s\n\n| neighbour | tried | result | test, date |\n|---|---|---|---|\n", f.Group)
		}
		result := "**" + string(f.Verdict) + "**"
		if f.Note != "" {
			result += " " + f.Note
		}
		fmt.Fprintf(&text, "| %s | %s | %s | `%s`, %s |\n", strings.TrimSpace(f.Neighbour+" "+f.Version), f.Case, result, f.Test, f.Date)
	}
	return text.String(), nil
}

// These keep the table's program honest without any neighbour.
func TestTables(t *testing.T) {
	got, err := tables([]finding{
		{Group: "B", Neighbour: "b", Case: "second", Verdict: fails, Note: "because of c.", Test: "TestB", Date: "2026-01-02"},
		{Group: "A", Neighbour: "a", Version: "1.2", Case: "first", Verdict: works, Test: "TestA", Date: "2026-01-01"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ = strings.Cut(got, "\n")
	want := "\n### A\n\n| neighbour | tried | result | test, date |\n|---|---|---|---|\n| a 1.2 | first | **works** | `TestA`, 2026-01-01 |\n" +
		"\n### B\n\n| neighbour | tried | result | test, date |\n|---|---|---|---|\n| b | second | **does not work** because of c. | `TestB`, 2026-01-02 |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
