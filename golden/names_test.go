package golden

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestSetsPage compares the table of sets and maps in docs/ruleset.md with those of all
// rulesets here.
func TestSetsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/ruleset.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Sets and maps\n")
	section, _, _ = strings.Cut(section, "\n## ")

	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`[^`]+`").FindAllString(row[1], -1) {
			listed[pattern(strings.Trim(name, "`"))] = true
		}
	}
	rendered := map[string]bool{}
	for _, path := range casePaths(t) {
		for _, p := range read(t, path).phases {
			for _, table := range p.rules.Tables {
				for _, set := range table.Sets {
					rendered[pattern(set.Name)] = true
				}
			}
		}
	}

	for name := range rendered {
		if id := nft.IDOf(name); id.Shape == nft.OfRange && listed[id.Name] && !listed[name] {
			delete(rendered, name)
			rendered[nft.SetID{Name: "NAME", Shape: nft.OfRange}.String()] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(rendered)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("docs/ruleset.md (-rendered +listed):\n%s", diff)
	}
}

// TestSchema: each set of the rulesets here is declared as its row says, and each row is
// used.
func TestSchema(t *testing.T) {
	used := make(map[nft.SetID]bool)
	for _, path := range casePaths(t) {
		for _, p := range read(t, path).phases {
			for _, table := range p.rules.Tables {
				for _, set := range table.Sets {
					row, declared := nft.RowOf(set.Name), nft.Declare(set.Name)
					used[nft.SetID{Name: row.Name, Shape: nft.IDOf(set.Name).Shape}] = true
					if !slices.Equal(set.Key, declared.Key) || !slices.Equal(set.Data, declared.Data) || set.Interval != declared.Interval {
						t.Errorf("%s: set %s differs from its row: %+v", path, set.Name, row)
					}
				}
			}
		}
	}
	for i := range nft.Schema {
		for _, id := range nft.Schema[i].Sets() {
			if !used[id] {
				t.Errorf("no golden file has the set %s", id)
			}
		}
	}
}

func casePaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(goldens)
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	return paths
}

var variable = regexp.MustCompile(`\b(\d+|N|B)\b|\b(second|minute|hour|UNIT)\b|\b(default/\w+|SERVICE)\b`)

// pattern replaces what differs between sets of a kind, as in "allowed-24".
func pattern(name string) string { return variable.ReplaceAllString(name, "*") }
