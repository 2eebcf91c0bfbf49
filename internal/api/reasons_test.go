package api

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestReasonsPage: 17.6, docs/observe.md has the table of reasons. With -update it is written.
func TestReasonsPage(t *testing.T) {
	const path, begin, end = "../../docs/observe.md", "<!-- begin reasons -->\n", "<!-- end reasons -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the reasons", path)
	}
	var table strings.Builder
	table.WriteString("\n| reason | ends | why | what to do |\n|---|---|---|---|\n")
	for i := range model.Refusals {
		r := &model.Refusals[i]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", r.Name, r.Ends(), r.Text, r.Advice)
	}
	want := head + begin + table.String() + "\n" + end + tail
	switch {
	case want == string(page):
	case flag.Lookup("update").Value.String() == "true":
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/observe.md has other reasons: run go test ./internal/api -update")
	}
}
