package tcpproxy

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// order is the order in which servers are tried for a connection. The first one is by the
// scheduler; others are at random, by weight, but with source-hash the next ones of the client.
type order struct {
	servers   []model.Endpoint
	scheduler model.Scheduler
	client    netip.Addr
	turn      uint64 // of the connection to its frontend
	tried     []int
}

// next returns the next server, and whether it is the last one; false: there is none.
func (o *order) next() (e model.Endpoint, last, ok bool) {
	left := len(o.servers) - len(o.tried)
	if left == 0 {
		return e, false, false
	}
	i := o.pick()
	o.tried = append(o.tried, i)
	return o.servers[i], left == 1, true
}

// pick returns the server with the highest weighted score: of the client with source-hash (rendezvous hashing), so that a
// server that comes or goes moves only the clients that it gets or had, and else a random one.
func (o *order) pick() int {
	if o.scheduler == model.RoundRobin && len(o.tried) == 0 {
		return o.pickInTurn()
	}
	best, least := -1, math.Inf(1)
	for i, e := range o.servers {
		if slices.Contains(o.tried, i) {
			continue
		}
		score := 1 - rand.Float64()
		if o.scheduler == model.SourceHash {
			score = unit(o.client, e.Address())
		}
		if cost := -math.Log(score) / float64(e.Weight()); cost < least {
			best, least = i, cost
		}
	}
	return best
}

// pickInTurn returns the server whose turn it is, by weight.
func (o *order) pickInTurn() (i int) {
	total := 0
	for _, e := range o.servers {
		total += e.Weight()
	}
	at := int(o.turn % uint64(total) * uint64(stride(total)) % uint64(total))
	for at >= o.servers[i].Weight() {
		at -= o.servers[i].Weight()
		i++
	}
	return i
}

// stride returns a step through n places that visits all of them before one again, and spreads
// neighbours: about n times the golden ratio.
func stride(n int) int {
	s := max(1, int(float64(n)*(math.Sqrt(5)-1)/2))
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// unit hashes a client and a server to a number above 0 and up to 1 (FNV-1a, with a final mix).
func unit(client netip.Addr, server netip.AddrPort) float64 {
	h := uint64(0xcbf29ce484222325)
	add := func(b byte) { h = (h ^ uint64(b)) * 0x100000001b3 }
	for _, a := range [...][16]byte{client.As16(), server.Addr().As16()} {
		for _, b := range a {
			add(b)
		}
	}
	add(byte(server.Port() >> 8))
	add(byte(server.Port()))
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return (float64(h>>11) + 1) / (1 << 53)
}
