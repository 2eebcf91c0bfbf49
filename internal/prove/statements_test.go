package prove_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/proof.md")

// leftOut has the statements about first packets and objects that the proof says nothing about, with
// the reason. All others of the first eight sections are in it.
var leftOut = []struct{ reason, statements string }{
	{"objects are read and checked before the proof begins",
		"1.1, 1.3 to 1.7, 1.9, 1.12 to 1.14, 1.16, 1.18 to 1.20, 1.23, 1.27 to 1.36, 1.43 to 1.49, 1.52, 1.58, 1.60 to 1.67, 2.1 to 2.5, 2.7 to 2.9, 2.11 to 2.14, 2.16, 2.25, 2.27, 3.31, 3.51, 4.73, 4.78, 4.81, 4.91, 6.1, 7.1, 7.7, 7.8"},
	{"they are about messages and documents, not about packets",
		"1.37, 1.59, 3.34 to 3.36, 3.65, 3.72, 4.51, 4.74, 4.83, 4.92, 4.95, 6.12, 6.22, 8.2"},
	{"they are about what comes before or after: established connections, and changes in time",
		"2.20 to 2.23, 2.26, 3.20, 3.41, 3.64, 3.69, 3.70, 4.5, 4.17, 4.50, 4.60, 4.61, 4.82, 4.90, 5.5, 5.7 to 5.10, 5.14, 5.15, 6.8, 6.10, 6.11, 7.9"},
	{"health checks have their result before the proof begins", "3.24 to 3.30, 3.32, 3.33, 3.66, 3.67, 3.73"},
	{"of a choice by hash the proof checks what is hashed, and that all endpoints are possible with their share, not which one it is", "3.45, 3.47"},
	{"they are about several machines", "3.42, 3.55 to 3.59"},
	{"they are about a process or the machine, and not about rules",
		"4.36, 4.43 to 4.45, 4.48, 4.64, 4.84, 4.94, 4.96 to 4.99, 6.14 to 6.21, 8.9"},
}

// sections are those that the proof is not about, with the statements that are in it all the same.
var otherSections = map[int]struct {
	about   string
	covered []string
}{
	9: {"connection tracking", []string{"9.42"}}, 10: {"health and readiness", nil}, 11: {"metrics and status", nil},
	12: {"commands and configuration", nil}, 13: {"when rules change", nil}, 14: {"permissions and deployment", nil},
	15: {"consequences of other statements", nil}, 16: {"what is reported of refused connections", nil},
	17: {"what is reported of connections", nil}, 18: {"all nodes of a cluster", nil}, 19: {"names of servers", nil},
}

// TestStatements writes the table of statements, and fails if one of behaviour.md is in no row, or in
// two.
func TestStatements(t *testing.T) {
	all := statements(t)
	left := make(map[string]string)
	for _, row := range leftOut {
		for _, n := range expand(t, row.statements) {
			if _, twice := left[n]; twice || !slices.Contains(all, n) {
				t.Errorf("%s is in two rows, or no statement", n)
			}
			left[n] = row.reason
		}
	}
	var table strings.Builder
	table.WriteString("| section | in the proof | left out |\n|---|---|---|\n")
	for section := 1; section <= 19; section++ {
		var in, out []string
		for _, n := range all {
			if strings.HasPrefix(n, strconv.Itoa(section)+".") {
				other, isOther := otherSections[section]
				if _, isLeft := left[n]; isLeft || isOther && !slices.Contains(other.covered, n) {
					out = append(out, n)
				} else {
					in = append(in, n)
				}
			}
		}
		fmt.Fprintf(&table, "| %d | %s | %s |\n", section, ranges(in), ranges(out))
	}
	table.WriteString("\nWhy statements are left out:\n\n")
	for _, row := range leftOut {
		fmt.Fprintf(&table, "- %s: %s.\n", row.statements, row.reason)
	}
	for section := 9; section <= 19; section++ {
		except := ""
		if c := otherSections[section].covered; c != nil {
			except = ", except " + strings.Join(c, ", ")
		}
		fmt.Fprintf(&table, "- Section %d%s: it is about %s.\n", section, except, otherSections[section].about)
	}
	checkPage(t, "statements", table.String())
}

const page = "../../docs/proof.md"

// checkPage compares a part of the page, between two comments, or rewrites it.
func checkPage(t *testing.T, part, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+part+" -->\n", "<!-- end "+part+" -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no part %s", page, part)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s: the part %s is not up to date: run go test ./internal/prove -run %s -update", page, part, t.Name())
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// statements returns the numbers of behaviour.md, in the order of the sections.
func statements(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`<a id="s([0-9]+\.[0-9]+)"`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	slices.SortFunc(out, func(a, b string) int {
		x, y := split(a), split(b)
		return slices.Compare(x[:], y[:])
	})
	return out
}

func split(n string) (out [2]int) {
	section, number, _ := strings.Cut(n, ".")
	out[0], _ = strconv.Atoi(section) // both are digits
	out[1], _ = strconv.Atoi(number)
	return out
}

// expand returns the numbers in a list with ranges, such as "1.1, 1.3 to 1.7".
func expand(t *testing.T, list string) (out []string) {
	t.Helper()
	for part := range strings.SplitSeq(list, ", ") {
		first, last, isRange := strings.Cut(part, " to ")
		if !isRange {
			last = first
		}
		a, b := split(first), split(last)
		if a[0] != b[0] || a[1] > b[1] {
			t.Fatalf("%q is no range", part)
		}
		for n := a[1]; n <= b[1]; n++ {
			out = append(out, fmt.Sprintf("%d.%d", a[0], n))
		}
	}
	return out
}

// ranges is the inverse of expand. Numbers that no statement has end a range.
func ranges(all []string) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && split(all[j+1])[1] == split(all[j])[1]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, all[i])
		case 1:
			parts = append(parts, all[i], all[j])
		default:
			parts = append(parts, all[i]+" to "+all[j])
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
