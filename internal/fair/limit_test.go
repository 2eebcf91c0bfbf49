package fair

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// held is a connection of the naive limit.
type held struct {
	number int
	from   netip.Prefix
}

// victimOf returns what a limit removes: by a search of all connections, the oldest first.
func victimOf(all []held, idle func(int) time.Duration) int {
	counts, most := make(map[netip.Prefix]int), 0
	for _, h := range all {
		counts[h.from]++
		most = max(most, counts[h.from])
	}
	i := slices.IndexFunc(all, func(h held) bool { return counts[h.from] == most })
	best := all[i]
	looks := 0
	for _, h := range all {
		if h.from == best.from && looks < looked && idle != nil {
			looks++
			if idle(h.number) > idle(best.number) {
				best = h
			}
		}
	}
	return best.number
}

// timed is the number of a connection that knows its idle time.
type timed int

var times = make(map[timed]time.Duration)

func (n timed) IdleFor() time.Duration { return times[n] }

// TestLimit compares the limit with the naive one, for random connections of a few clients.
func TestLimit(t *testing.T) {
	testLimit[int](t, nil)
	testLimit[timed](t, func(n int) time.Duration { return times[timed(n)] })
}

func testLimit[C ~int](t *testing.T, idle func(int) time.Duration) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 0))
		limit := NewLimit[C](1 + r.IntN(30))
		var all []held
		remove := func(number int) {
			all = slices.DeleteFunc(all, func(h held) bool { return h.number == number })
		}
		for n := range 500 {
			if r.IntN(3) == 0 && len(all) > 0 {
				number := all[r.IntN(len(all))].number
				limit.Remove(C(number))
				limit.Remove(C(number)) // which does nothing
				remove(number)
				continue
			}
			from := ClientOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(1 + r.IntN(8)))}))
			times[timed(n)] = time.Duration(r.IntN(100))
			all = append(all, held{n, from})
			got, exceeded := limit.Add(C(n), from)
			if exceeded != (len(all) > limit.Max()) {
				t.Fatalf("seed %d: exceeded %v with %d of %d", seed, exceeded, len(all), limit.Max())
			}
			if exceeded {
				if want := victimOf(all, idle); int(got) != want {
					t.Fatalf("seed %d: %d goes, want %d of %v", seed, got, want, all)
				}
				remove(int(got))
			}
			if limit.Len() != len(all) || limit.Full() != (len(all) >= limit.Max()) || len(limit.clients) != len(limit.order) {
				t.Fatalf("seed %d: %d connections of %d clients, want %d", seed, limit.Len(), len(limit.clients), len(all))
			}
		}
	}
}

// TestClientOf: addresses of one IPv6 network of 64 bits are one client.
func TestClientOf(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64"} {
		if got := ClientOf(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
