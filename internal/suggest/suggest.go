// Package suggest finds the names that a misspelt one may stand for.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const most = 3

// Similar returns the names that resemble word most, the closest first; none if none resembles it. A name resembles
// a word if a few edits lead from one to the other, or if it contains the word.
func Similar(word string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	limit := min(3, max(1, (len(word)+2)/4))
	var all []candidate
	for _, name := range names {
		d := limit + 1
		if max(len(name)-len(word), len(word)-len(name)) <= limit {
			d = distance(word, name)
		}
		if d > limit && len(word) > 2 && strings.Contains(name, word) {
			d = limit // it may be cut
		}
		if d <= limit {
			all = append(all, candidate{name, d})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, c := range all {
		if len(out) < most && !slices.Contains(out, c.name) {
			out = append(out, c.name)
		}
	}
	return out
}

// DidYouMean returns for example ": did you mean a or b?", or nothing without names.
func DidYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	last := len(names) - 1
	text := names[last]
	if last > 0 {
		text = strings.Join(names[:last], ", ") + " or " + text
	}
	return ": did you mean " + text + "?"
}

// OneOf returns for example `use "IPv4", "IPv6" or "FQDN"`.
func OneOf(values ...string) string { return "use " + Quoted(values, "or") }

// Quoted returns for example `"IPv4", "IPv6" or "FQDN"`.
func Quoted(values []string, word string) string {
	last := len(values) - 1
	return fmt.Sprintf(`"%s" %s %q`, strings.Join(values[:last], `", "`), word, values[last])
}

// distance returns the number of characters to insert, delete, replace or swap with
// their neighbour (optimal string alignment).
func distance(a, b string) int {
	var before []int
	last, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		if before == nil {
			before = make([]int, len(b)+1)
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
