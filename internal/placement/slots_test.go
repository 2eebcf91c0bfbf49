package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// list reads endpoints: names of one letter, each with a weight if it is not 1,
// such as "a b3".
func list(text string) []model.Endpoint {
	var out []model.Endpoint
	for _, field := range strings.Fields(text) {
		h := &model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, field[0]})}
		if len(field) > 1 {
			_, _ = fmt.Sscan(field[1:], &h.Weight) // tests write digits
		}
		out = append(out, model.Endpoint{Host: h, Port: 80})
	}
	return out
}

// letters returns the names in a span of slots, sorted.
func letters(l Layout, s Span) string {
	var names []string
	slots := l.Slots
	if s.First == nft.OwnSlots {
		slots = l.Own
	}
	for _, e := range slots[:s.Count] {
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
		{"outside is a part", "a b c", "b", "a b c", "b", nft.FirstSlot},
		{"outside is all", "a b", "a b", "a b", "a b", nft.FirstSlot},
		{"outside has one more", "a b", "b c", "a b", "b c", nft.OwnSlots},
		{"nothing in common", "a b", "c d", "a b", "c d", nft.OwnSlots},
		{"weights", "a2 b", "a2", "a a b", "a a", nft.FirstSlot},
		{"equal weights", "a7 b7", "", "a b", "", 0},
		{"common divisor", "a6 b4", "", "a a a b b", "", 0},
		{"nothing", "", "", "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New("node-1", portName("web"), model.RoundRobin, list(c.in), list(c.out))
			if got := letters(l, l.Inside); got != c.wantInside {
				t.Errorf("Inside: %q, want %q", got, c.wantInside)
			}
			if got := letters(l, l.Outside); got != c.wantOutside {
				t.Errorf("Outside: %q, want %q", got, c.wantOutside)
			}
			if l.Outside.First != c.first {
				t.Errorf("outside starts at %d, want %d", l.Outside.First, c.first)
			}
		})
	}
}

// TestWeightsAreSpread wants no endpoint twice in a row where that can be
// avoided.
func TestWeightsAreSpread(t *testing.T) {
	slots := placeWeighted(list("a3 b2 c1"), scale{1, 1})
	for i := 1; i < len(slots); i++ {
		if slots[i] == slots[i-1] {
			t.Errorf("slots %d and %d are alike: %v", i-1, i, slots)
		}
	}
}

// TestSlotsAreBounded: 3.21. Weights are exact where that takes few slots.
// Otherwise there are no more slots than there may be, each endpoint has one,
// and the shares are near the weights.
func TestSlotsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name      string
		endpoints int
		weight    func(i int) uint16
		slots     []int // of the first two endpoints
	}{
		{"exact, two endpoints", 2, func(i int) uint16 { return uint16(1 + 99*i) }, []int{1, 100}},
		{"exact, equal", 5000, func(int) uint16 { return 97 }, []int{1, 1}},
		{"exact, common divisor", 500, func(i int) uint16 { return uint16(100 - 50*(i%2)) }, []int{2, 1}},
		{"exact, as many as there may be", 256, func(i int) uint16 { return uint16(15 + i%2*2) }, []int{15, 17}},
		{"a canary among 500", 501, func(i int) uint16 { return []uint16{1, 100}[min(i, 1)] }, []int{1, 6}},
		{"5,000 alternating", 5000, func(i int) uint16 { return uint16(99 + i%2) }, []int{3, 3}},
		{"5,000 of 1 and 10", 5000, func(i int) uint16 { return uint16(1 + i%2*9) }, []int{1, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var endpoints []model.Endpoint
			for i := range c.endpoints {
				a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				endpoints = append(endpoints, model.Endpoint{Host: &model.Host{Address: a, Weight: c.weight(i)}, Port: 80})
			}
			l := New("node-1", portName("web"), model.RoundRobin, endpoints, endpoints[:1])
			if len(l.Slots) > slotsFor(c.endpoints) {
				t.Errorf("%d slots, want no more than %d", len(l.Slots), slotsFor(c.endpoints))
			}
			slots := make(map[netip.AddrPort]int)
			for _, a := range l.Slots {
				slots[a]++
			}
			if len(slots) != c.endpoints {
				t.Errorf("%d of %d endpoints have a slot", len(slots), c.endpoints)
			}
			if got := []int{slots[endpoints[0].Address()], slots[endpoints[1].Address()]}; !slices.Equal(got, c.slots) {
				t.Errorf("the first two endpoints have %d slots, want %d", got, c.slots)
			}
		})
	}
}

// TestSlotsStay: adding or removing an endpoint does not change the number of slots of
// the others, unless the total exceeds a bound.
func TestSlotsStay(t *testing.T) {
	slots := func(n int) int {
		var endpoints []model.Endpoint
		for i := range n {
			endpoints = append(endpoints, model.Endpoint{Host: &model.Host{Weight: []uint16{1, 100}[min(i, 1)]}})
		}
		return newScale(endpoints, nil).slotsFor(endpoints[1])
	}
	changes := 0
	for n := 2; n < 1000; n++ {
		if slots(n) != slots(n+1) {
			changes++
		}
	}
	if changes > 6 { // 100, 50, 25, 13, 6, 3
		t.Errorf("the slots of an endpoint change %d times while the other weights grow to 1,000", changes)
	}
}
