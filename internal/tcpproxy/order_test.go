package tcpproxy

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// servers returns servers with these weights.
func servers(weights ...uint16) (out []model.Endpoint) {
	for i, w := range weights {
		out = append(out, model.Endpoint{Host: &model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Weight: w}, Port: 80})
	}
	return out
}

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }

// TestTurns: 4.97. Connections take the servers in turn, by weight, for any weights.
func TestTurns(t *testing.T) {
	for _, weights := range [][]uint16{{1}, {1, 1}, {1, 1, 1}, {3, 1}, {100, 100}, {5, 2, 7, 1}, {0, 0, 0, 0, 0, 0}} {
		all := servers(weights...)
		total, got := 0, make(map[netip.AddrPort]int)
		for _, e := range all {
			total += e.Weight()
		}
		for turn := range 3 * total {
			o := order{servers: all, scheduler: model.RoundRobin, turn: uint64(turn)}
			e, last, ok := o.next()
			if !ok || last != (len(all) == 1) {
				t.Fatalf("%v: %v %v %v", weights, e, last, ok)
			}
			got[e.Address()]++
		}
		for _, e := range all {
			if got[e.Address()] != 3*e.Weight() {
				t.Errorf("%v: %v, want three times the weights", weights, got)
			}
		}
	}
}

// TestOrder: 4.97. Each server is tried at most once, with any scheduler.
func TestOrder(t *testing.T) {
	for _, scheduler := range []model.Scheduler{model.RoundRobin, model.Random, model.SourceHash} {
		for i := range 100 {
			o := order{servers: servers(1, 5, 2, 2), scheduler: scheduler, client: client(i), turn: uint64(i)}
			tried := make(map[netip.AddrPort]bool)
			for {
				e, last, ok := o.next()
				if !ok {
					break
				}
				tried[e.Address()] = true
				if last != (len(tried) == 4) {
					t.Errorf("%s: %d tried, last is %v", scheduler, len(tried), last)
				}
			}
			if len(tried) != 4 {
				t.Errorf("%s: %d of 4 servers are tried", scheduler, len(tried))
			}
		}
	}
}

// TestSourceHash: 4.97. A client has its server by weight, and moves only if that one goes.
func TestSourceHash(t *testing.T) {
	const clients = 4000
	all, got, moved := servers(1, 1, 2), make([]int, 3), 0
	for i := range clients {
		first := order{servers: all, scheduler: model.SourceHash, client: client(i)}
		before := first.pick()
		got[before]++
		fewer := order{servers: all[:2], scheduler: model.SourceHash, client: client(i)}
		if after := fewer.pick(); before != 2 && after != before {
			moved++
		}
	}
	if moved > 0 {
		t.Errorf("%d clients have another server, and theirs stayed", moved)
	}
	for i, n := range got {
		if share := float64(n) / clients * 4 / float64(all[i].Weight()); share < 0.85 || share > 1.15 {
			t.Errorf("clients of the servers %v, want 1:1:2", got)
		}
	}
}
