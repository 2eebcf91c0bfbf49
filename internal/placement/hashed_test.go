package placement

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

func portName(name string) model.PortName {
	return model.PortName{Service: model.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: model.TCP}
}

// hostsAt returns endpoints of hosts with these numbers.
func hostsAt(port uint16, numbers ...int) []model.Endpoint {
	var out []model.Endpoint
	for _, i := range numbers {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		out = append(out, model.Endpoint{Host: &model.Host{Address: a}, Port: port})
	}
	return out
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

func hashSlots(node, service string, endpoints []model.Endpoint) []netip.AddrPort {
	return New(node, portName(service), model.SourceHash, endpoints, nil).Slots
}

// TestHashedIsPure: 3.40. Neither the node nor the order of the endpoints decides where
// an endpoint is, and the slots of other ports are those of the same hosts.
func TestHashedIsPure(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		endpoints := hostsAt(80, upTo(1+r.IntN(20))...)
		for _, e := range endpoints {
			e.Host.Weight = uint16(1 + r.IntN(4))
		}
		want := hashSlots("a", "web", endpoints)
		r.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
		if got := hashSlots("b", "web", endpoints); !slices.Equal(got, want) {
			t.Fatalf("node b has the slots %v, node a %v", got, want)
		}
		for i := range endpoints {
			endpoints[i].Port = 443
		}
		for i, e := range hashSlots("b", "tls", endpoints) {
			if e.Addr() != want[i].Addr() {
				t.Fatalf("slot %d is at %v for one port, and at %v for another one", i, want[i], e)
			}
		}
	}
}

// TestHashedTakesItsShare: endpoints take as many slots as by other schedulers, also if
// several are on one host.
func TestHashedTakesItsShare(t *testing.T) {
	for _, text := range []string{"a", "a b c", "a2 b", "a100 b3 c7", "a3 a3 b3"} {
		endpoints := list(text)
		for i := range endpoints {
			endpoints[i].Port += uint16(i)
		}
		hash, turns := hashSlots("a", "web", endpoints), New("a", portName("web"), model.RoundRobin, endpoints, nil).Slots
		slices.SortFunc(hash, netip.AddrPort.Compare)
		slices.SortFunc(turns, netip.AddrPort.Compare)
		if !slices.Equal(hash, turns) {
			t.Errorf("%s: by hash %v, by turns %v", text, hash, turns)
		}
	}
}

// TestHashedMovesFew: 3.40. A replaced endpoint moves few others.
func TestHashedMovesFew(t *testing.T) {
	for _, c := range []struct {
		n       int
		maximum float64 // slots that change, on average
	}{{2, 1.6}, {3, 1.9}, {10, 3}, {100, 5.5}, {2000, 9}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			moved, rounds := 0, max(10, 2000/c.n)
			for i := range rounds {
				numbers := upTo(c.n)
				before := hashSlots("a", "web", hostsAt(80, numbers...))
				numbers[i%c.n] = 10_000 + i
				for slot, e := range hashSlots("a", "web", hostsAt(80, numbers...)) {
					if e != before[slot] {
						moved++
					}
				}
			}
			if average := float64(moved) / float64(rounds); average > c.maximum {
				t.Errorf("a replaced endpoint changes %.1f slots, want no more than %.1f", average, c.maximum)
			}
		})
	}
}

func BenchmarkHashed(b *testing.B) {
	for _, n := range []int{3, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			endpoints := hostsAt(80, upTo(n)...)
			b.ReportAllocs()
			for range b.N {
				hashSlots("a", "web", endpoints)
			}
		})
	}
}
