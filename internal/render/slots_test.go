package render

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// list reads endpoints: names of one letter, each with a weight if it is not 1,
// such as "a b3".
func list(text string) []model.Endpoint {
	var out []model.Endpoint
	for _, field := range strings.Fields(text) {
		h := &model.Host{}
		if len(field) > 1 {
			_, _ = fmt.Sscan(field[1:], &h.Weight) // tests write digits
		}
		a := netip.AddrFrom4([4]byte{10, 0, 0, field[0]})
		out = append(out, model.Endpoint{Address: netip.AddrPortFrom(a, 80), Host: h})
	}
	return out
}

// letters returns the names in a span of slots, sorted.
func letters(l layout, s span) string {
	var names []string
	for _, e := range l.slots[s.first : s.first+s.count] {
		names = append(names, string(rune(e.Addr().As4()[3])))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		name, in, out           string
		wantInside, wantOutside string
		first                   int // slot for clients outside
	}{
		{"one list", "a b c", "", "a b c", "", 0},
		{"outside is a part", "a b c", "b", "a b c", "b", 0},
		{"outside is all", "a b", "a b", "a b", "a b", 0},
		{"outside has one more", "a b", "b c", "a b", "b c", 1},
		{"nothing in common", "a b", "c d", "a b", "c d", 2},
		{"weights", "a2 b", "a2", "a a b", "a a", 0},
		{"equal weights", "a7 b7", "", "a b", "", 0},
		{"common divisor", "a6 b4", "", "a a a b b", "", 0},
		{"nothing", "", "", "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLayout("node-1", portName("web"), list(c.in), list(c.out))
			if got := letters(l, l.inside); got != c.wantInside {
				t.Errorf("inside: %q, want %q", got, c.wantInside)
			}
			if got := letters(l, l.outside); got != c.wantOutside {
				t.Errorf("outside: %q, want %q", got, c.wantOutside)
			}
			if l.outside.first != c.first {
				t.Errorf("outside starts at %d, want %d", l.outside.first, c.first)
			}
		})
	}
}

// TestWeightsAreSpread wants no endpoint twice in a row where that can be
// avoided.
func TestWeightsAreSpread(t *testing.T) {
	slots := weighted(list("a3 b2 c1"), 1)
	for i := 1; i < len(slots); i++ {
		if slots[i] == slots[i-1] {
			t.Errorf("slots %d and %d are alike: %v", i-1, i, slots)
		}
	}
}
