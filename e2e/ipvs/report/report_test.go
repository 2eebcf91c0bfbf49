package report

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

const (
	results = "../../../docs/ipvs/results.json"
	page    = "../../../docs/ipvs.md"
)

var update = flag.Bool("update", false, "write the page")

// The page says what "make test-ipvs" measured.
func TestPage(t *testing.T) {
	var r Results
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Insert(string(found), r)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(found) {
		t.Errorf("%s differs from %s: run this test with -update", page, results)
	}
}

// All moves are one table; broken connections and clients that moved show.
func TestTables(t *testing.T) {
	move := func(failed, broken, moved int) Move {
		return Move{Scheduler: "rr", Phases: []Phase{{Name: "a", Counts: []Count{{Kind: "new", Requests: 10, Failed: failed}}},
			{Name: "b", Counts: []Count{{Kind: "new", Requests: 5, Failed: broken, Flows: 4, Broken: broken, Moved: moved}}}}}
	}
	got := Tables(Results{Kernel: "6.12", Moves: []Move{move(1, 0, 0), move(2, 3, 1)}})
	if want := "| | a | b |\n|---|---:|---:|\n| new | 3 of 20 | 3 of 8 broken, 1 moved |\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := Insert("no place", Results{}); err == nil {
		t.Error("a page without a place for the tables is accepted")
	}
}
