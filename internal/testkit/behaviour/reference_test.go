package behaviour

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	sections      = `(?:[1-9]|1[0-9])` // of the reference
	root          = "../../.."
	referencePath = "docs/behaviour.md"
)

// statement is one numbered statement of the reference, or a table.
type statement struct {
	number  string
	anchor  string // in front of the number, for links
	differs bool   // from kube-proxy
}

// reference is docs/behaviour.md.
type reference struct {
	statements map[string]statement
	repeated   []string          // numbers of more than one statement
	summary    []string          // numbers in the table of differences
	untested   map[string]string // number to reason
}

var (
	statementLine = regexp.MustCompile(`^(?:- )?(?:<a id="([^"]*)"></a>)?\*\*(?:Table )?(` + sections + `[.-](?:[0-9]+|[A-Z]))\*\*`)
	summaryLine   = regexp.MustCompile(`^\| (` + sections + `\.[0-9]+(?:, ` + sections + `\.[0-9]+)*) \|`)
	untestedLine  = regexp.MustCompile(`^- (` + sections + `[.-](?:[0-9]+|[A-Z])): (.+)$`)
)

func readReference(t *testing.T) *reference {
	t.Helper()
	text, err := os.ReadFile(root + "/" + referencePath)
	if err != nil {
		t.Fatal(err)
	}
	r := &reference{statements: make(map[string]statement), untested: make(map[string]string)}
	section, number := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			number = ""
		}
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if section == "Not tested" {
			if m := untestedLine.FindStringSubmatch(line); m != nil {
				r.untested[m[1]] = m[2]
			}
			continue
		}
		if m := summaryLine.FindStringSubmatch(line); m != nil && strings.HasPrefix(section, "Differences") {
			r.summary = append(r.summary, strings.Split(m[1], ", ")...)
		}
		if m := statementLine.FindStringSubmatch(line); m != nil {
			number = m[2]
			if _, ok := r.statements[number]; ok {
				r.repeated = append(r.repeated, number)
			}
			r.statements[number] = statement{number: number, anchor: m[1]}
		}
		if s, ok := r.statements[number]; ok && strings.Contains(line, "**Differs:**") {
			s.differs = true
			r.statements[number] = s
		}
	}
	return r
}

// numbers are those of the statements of each section, from the first to the
// last one of each range.
var numbers = map[int][][2]int{
	1:  {{1, 37}, {40, 67}},
	2:  {{1, 27}},
	3:  {{1, 36}, {40, 42}, {45, 51}, {55, 73}},
	4:  {{1, 48}, {50, 51}, {60, 61}, {64, 99}},
	5:  {{1, 16}},
	6:  {{1, 22}},
	7:  {{1, 10}},
	8:  {{1, 9}},
	9:  {{1, 43}},
	10: {{1, 33}},
	11: {{1, 27}, {30, 31}},
	12: {{1, 14}, {40, 62}, {66, 99}},
	13: {{1, 24}, {26, 31}},
	14: {{1, 11}, {15, 16}, {20, 29}},
	15: {{1, 12}},
	16: {{1, 8}},
	17: {{1, 18}},
	18: {{1, 21}, {23, 28}},
	19: {{1, 9}},
}

func TestReferenceIsComplete(t *testing.T) {
	r := readReference(t)
	for _, n := range r.repeated {
		t.Errorf("statement %s occurs twice", n)
	}
	known := make(map[string]bool)
	for section, ranges := range numbers {
		for _, r := range ranges {
			for i := r[0]; i <= r[1]; i++ {
				known[fmt.Sprintf("%d.%d", section, i)] = true
			}
		}
	}
	for n := range known {
		if _, ok := r.statements[n]; !ok {
			t.Errorf("statement %s is missing", n)
		}
	}
	for n := range r.statements {
		if strings.Contains(n, ".") && !known[n] {
			t.Errorf("statement %s is unknown", n)
		}
	}
}

// TestAnchors proves that a link such as behaviour.md#s4.23 leads to its
// statement.
func TestAnchors(t *testing.T) {
	for n, s := range readReference(t).statements {
		if s.anchor != "s"+n {
			t.Errorf(`statement %s has the anchor %q: write <a id="s%s"></a> in front of it`, n, s.anchor, n)
		}
	}
}

// TestSummaryOfDifferences proves that the table at the top of the reference
// lists exactly the statements that say "Differs:".
func TestSummaryOfDifferences(t *testing.T) {
	r := readReference(t)
	for _, n := range slices.Sorted(maps.Keys(r.statements)) {
		listed := slices.Contains(r.summary, n)
		if differs := r.statements[n].differs; differs != listed {
			t.Errorf("statement %s differs: %t; in the table of differences: %t", n, differs, listed)
		}
	}
	for _, n := range r.summary {
		if _, ok := r.statements[n]; !ok {
			t.Errorf("the table of differences has %s, which is no statement", n)
		}
	}
}
