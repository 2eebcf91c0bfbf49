package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestMaglevIsPure: 3.45. Neither the order of the endpoints nor their port decides
// where an endpoint is.
func TestMaglevIsPure(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		endpoints := hostsAt(80, upTo(2+r.IntN(20))...)
		for _, e := range endpoints {
			e.Host.Weight = uint16(1 + r.IntN(4))
		}
		want := maglevTable(endpoints, 251)
		r.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
		if got := maglevTable(endpoints, 251); !slices.Equal(got, want) {
			t.Fatalf("the order of the endpoints changes the table to %v from %v", got, want)
		}
		for i := range endpoints {
			endpoints[i].Port = 443
		}
		for i, e := range maglevTable(endpoints, 251) {
			if e.Addr() != want[i].Addr() {
				t.Fatalf("slot %d is at %v for one port, and at %v for another one", i, want[i], e)
			}
		}
	}
}

// TestMaglevIsStable pins a table: nodes that run today have it, and an upgrade must not
// move clients.
func TestMaglevIsStable(t *testing.T) {
	h := fnvOffset
	for _, e := range maglevTable(hostsAt(80, upTo(7)...), 251) {
		h = Add(h, e.String())
	}
	if got, want := h.MixedSum(), uint64(0xacf7fa57fd01f8aa); got != want {
		t.Errorf("the table of 7 endpoints has the hash %#x, want %#x", got, want)
	}
}

// shares counts the slots of each endpoint.
func shares(table []netip.AddrPort) map[netip.AddrPort]int {
	out := make(map[netip.AddrPort]int)
	for _, e := range table {
		out[e]++
	}
	return out
}

// TestMaglevTakesItsShare: 3.46. No endpoint has more than one slot more than its weight
// makes it, and none is without a slot.
func TestMaglevTakesItsShare(t *testing.T) {
	for _, text := range []string{"a b", "a b c", "a2 b", "a100 b3 c7", "a3 a3 b3", "a100 b1", "a100 b100 c99 d1"} {
		endpoints := list(text)
		total := 0
		for i := range endpoints {
			endpoints[i].Port += uint16(i) // some are on one host
			total += endpoints[i].Weight()
		}
		got := shares(maglevTable(endpoints, 1021))
		for _, e := range endpoints {
			want := 1021 * float64(e.Weight()) / float64(total)
			if n := got[e.Address()]; math.Abs(float64(n)-want) > float64(len(endpoints)) || n == 0 {
				t.Errorf("%s: %s has %d slots, want about %.1f", text, e.Address(), n, want)
			}
		}
	}
	for _, n := range []int{2, 100, 1020, 1021} {
		least, most := math.MaxInt, 0
		got := shares(maglevTable(hostsAt(80, upTo(n)...), 1021))
		for _, slots := range got {
			least, most = min(least, slots), max(most, slots)
		}
		if len(got) != n || most-least > 1 {
			t.Errorf("%d of %d endpoints have slots, from %d to %d", len(got), n, least, most)
		}
	}
}

// TestMaglevSize: 3.47. Each endpoint has a slot, however many there are, and one
// needs no more.
func TestMaglevSize(t *testing.T) {
	for _, c := range []struct {
		asked         uint32
		endpoints, is int
	}{
		{0, 1, 1}, {0, 2, 1021}, {0, 1021, 1021}, {0, 1022, 2039}, {251, 2, 251}, {251, 252, 509}, {131071, 2, 131071}, {0, 131070, 131071},
	} {
		s := &model.Service{Extras: &model.Extras{MaglevSize: c.asked}}
		l := NewMaglev(s, hostsAt(80, upTo(c.endpoints)...), nil)
		if len(l.Slots) != c.is || l.Inside != (Span{nft.FirstSlot, c.is}) || len(shares(l.Slots)) != c.endpoints {
			t.Errorf("%d endpoints in a table of %d: %d slots for %d of them, at %v", c.endpoints, c.asked, len(l.Slots), len(shares(l.Slots)), l.Inside)
		}
	}
}

// TestMaglevOutside: 3.48. Clients outside of the cluster have a table of their own for
// their endpoints, and share one if they have the same.
func TestMaglevOutside(t *testing.T) {
	all := hostsAt(80, upTo(4)...)
	for name, c := range map[string]struct {
		inside, outside []model.Endpoint
		own             int
		at              Span
	}{
		"part":       {all, all[:2], 1021, Span{nft.OwnSlots, 1021}},
		"one":        {all, all[:1], 1, Span{nft.OwnSlots, 1}},
		"others":     {all[:2], all[2:], 1021, Span{nft.OwnSlots, 1021}},
		"the same":   {all, slices.Clone(all), 0, Span{nft.FirstSlot, 1021}},
		"none":       {all, nil, 0, Span{}},
		"no inside":  {nil, all, 1021, Span{nft.OwnSlots, 1021}},
		"same alone": {all[:1], all[:1], 0, Span{nft.FirstSlot, 1}},
	} {
		l := NewMaglev(&model.Service{}, c.inside, c.outside)
		if len(l.Own) != c.own || l.Outside != c.at || len(c.inside) > 0 && len(shares(l.Slots)) != len(c.inside) || c.own > 0 && len(shares(l.Own)) != len(c.outside) {
			t.Errorf("%s: %d slots of their own at %v, want %d at %v", name, len(l.Own), l.Outside, c.own, c.at)
		}
	}
}

// TestMaglevMovesFew: 3.45. If one of n endpoints leaves or comes, little more than one
// slot in n gets another endpoint.
func TestMaglevMovesFew(t *testing.T) {
	for _, c := range []struct {
		endpoints int
		most      float64 // part of the slots
	}{{2, 0.51}, {3, 0.35}, {10, 0.13}, {100, 0.05}} {
		if got := moved(c.endpoints, 1021, maglevTable); got > c.most || got < 1/float64(c.endpoints)-0.01 {
			t.Errorf("%d endpoints: %.3f of the slots move, want no more than %.3f", c.endpoints, got, c.most)
		}
	}
}

// moved returns which part of all clients gets another endpoint if one of n leaves, on
// average. The slot of a client is its hash divided by the range of a slot, as in the
// kernel.
func moved(n, size int, table func([]model.Endpoint, int) []netip.AddrPort) float64 {
	const rounds, clients = 10, 20_011
	sum := 0
	for r := range rounds {
		var numbers []int
		for i := range n {
			numbers = append(numbers, r*n+i+1)
		}
		before := table(hostsAt(80, numbers...), size)
		after := table(hostsAt(80, slices.Delete(slices.Clone(numbers), r*n/rounds, r*n/rounds+1)...), size)
		for i := range clients {
			if before[i*len(before)/clients] != after[i*len(after)/clients] {
				sum++
			}
		}
	}
	return float64(sum) / rounds / clients
}

// unevenness returns the greatest share of an endpoint divided by the mean.
func unevenness(table []netip.AddrPort, endpoints int) float64 {
	most := 0
	for _, n := range shares(table) {
		most = max(most, n)
	}
	return float64(most) * float64(endpoints) / float64(len(table))
}

// BenchmarkMaglevMoves measures which part of the clients gets another endpoint if one
// of n leaves, in percent (100/n is the least), and by how much the greatest share
// exceeds the mean.
func BenchmarkMaglevMoves(b *testing.B) {
	inOrder := func(endpoints []model.Endpoint, _ int) (out []netip.AddrPort) {
		for _, e := range endpoints {
			out = append(out, e.Address())
		}
		return out
	}
	bySource := func(endpoints []model.Endpoint, _ int) []netip.AddrPort { return hashSlots("a", "web", endpoints) }
	for _, n := range []int{2, 3, 10, 100, 1000} {
		report := func(name string, size int, table func([]model.Endpoint, int) []netip.AddrPort) {
			b.Run(fmt.Sprintf("endpoints=%d/%s", n, name), func(b *testing.B) {
				var m float64
				for range b.N {
					m = moved(n, size, table)
				}
				b.ReportMetric(m*100, "%moved")
				b.ReportMetric(unevenness(table(hostsAt(80, upTo(n)...), size), n), "max/mean")
			})
		}
		report("mod-n", 0, inOrder)
		report("source-hash", 0, bySource)
		for _, size := range model.MaglevSizes {
			report(fmt.Sprintf("maglev-%d", size), int(size), maglevTable)
		}
	}
}

// BenchmarkMaglevTable computes one table.
func BenchmarkMaglevTable(b *testing.B) {
	for _, size := range []int{251, 1021, 16381, 131071} {
		for _, n := range []int{2, 10, 100, 1000} {
			endpoints := hostsAt(80, upTo(n)...)
			for _, uneven := range []bool{false, true} {
				if uneven {
					endpoints[0].Host.Weight = 100
				}
				b.Run(fmt.Sprintf("slots=%d/endpoints=%d/weights=%v", size, n, uneven), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						maglevTable(endpoints, size)
					}
				})
			}
			endpoints[0].Host.Weight = 0
		}
	}
}
