package placement

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// starting returns so many endpoints of these weights in turn, of which the last one has a part of its
// weight; zero: all have the whole.
func starting(n int, part uint8, weights ...uint16) []model.Endpoint {
	out := make([]model.Endpoint, n)
	for i := range out {
		h := &model.Host{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Weight: weights[i%len(weights)]}
		out[i] = model.Endpoint{Host: h, Port: 80}
		if part > 0 {
			out[i].Part = model.StartParts
		}
	}
	if part > 0 {
		out[n-1].Part = part
	}
	return out
}

// TestSlowStartSlots: 3.71. Each step of an endpoint that starts slowly adds slots to it, in the ratio
// of its part, and changes no slots of the others. The number of all stays within the budget.
func TestSlowStartSlots(t *testing.T) {
	for _, c := range []struct {
		n       int
		weights []uint16
	}{{2, []uint16{1}}, {3, []uint16{100}}, {3, []uint16{3, 2}}, {30, []uint16{1}}, {50, []uint16{1, 7}}, {1000, []uint16{1}}, {4, []uint16{65535, 1}}} {
		var before []int
		for part := uint8(1); part < model.StartParts; part++ {
			all := starting(c.n, part, c.weights...)
			s := newScale(all, nil)
			var now []int
			for _, e := range all {
				now = append(now, s.slotsFor(e))
			}
			if before != nil && (!slices.Equal(now[:c.n-1], before[:c.n-1]) || now[c.n-1] < before[c.n-1]) {
				t.Errorf("%d endpoints, part %d: the slots of the others change, or the ones of the endpoint shrink: %v, %v", c.n, part, before, now)
			}
			if total := s.totalSlots(all); total > max(512, budget.WeightSlots, 4*c.n) {
				t.Errorf("%d endpoints, part %d: %d slots", c.n, part, total)
			}
			if s.divisor == 1 && now[c.n-1]*all[0].Weight() != now[0]*all[c.n-1].Weight() {
				t.Errorf("%d endpoints, part %d: %d slots beside %d", c.n, part, now[c.n-1], now[0])
			}
			before = now
		}
		rest := starting(c.n, 0, c.weights...)
		if got, want := newScale(rest, nil).unit, newScale(starting(c.n, 1, c.weights...), nil).unit; got != want {
			t.Errorf("the unit is %d at rest, and %d in a slow start", got, want)
		}
	}
}
