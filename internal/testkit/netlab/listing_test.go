package netlab

import (
	"strings"
	"testing"
)

// TestListing: a long listing that lacks an element is not the result.
func TestListing(t *testing.T) {
	short, long := "table", strings.Repeat("element, ", resizable)
	for name, c := range map[string]struct {
		answers []string
		want    string
		asked   int
	}{
		"short":               {[]string{short, long}, short, 1},
		"long":                {[]string{long, long}, long, 2},
		"incomplete":          {[]string{long + "once", long, long}, long, 3},
		"incomplete, shorter": {[]string{long + "once", long + "again", short}, short, 3},
	} {
		asked := 0
		got := Listing(func(args ...string) string {
			asked++
			return c.answers[asked-1]
		}, "list", "ruleset")
		if got != c.want || asked != c.asked {
			t.Errorf("%s: asked %d times, want %d, for %d bytes, want %d", name, asked, c.asked, len(got), len(c.want))
		}
	}
}
