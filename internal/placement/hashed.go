package placement

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// placeHashed places endpoints in slots for the scheduler source-hash, where the slot of an
// endpoint decides which clients it gets. The result depends only on the endpoints and
// on how many slots each of them takes: neither on the node, nor on the Service, nor on
// earlier endpoints. So all machines send a client to the same endpoint, and to the same
// host for all ports of these hosts.
//
// Each share, which takes one slot, has an endless list of preferred slots, from a hash
// of the host's address. The shares that no slot has taken yet try their first choice,
// then their second one, and so on; of several that try a free slot in the same round,
// the lowest hash wins. If one of n endpoints is replaced, about ln n others move.
func placeHashed(endpoints []model.Endpoint, keep func(model.Endpoint) bool, s scale) []netip.AddrPort {
	shares := sharesOf(slices.DeleteFunc(slices.Clone(endpoints), negatePredicate(keep)), s)
	slots := make([]taken, len(shares))
	waiting := make([]int, len(shares))
	for i := range waiting {
		waiting[i] = i
	}
	for round := 1; len(waiting) > 0 && round <= 8*len(shares); round++ {
		waiting = trySlots(slots, shares, waiting, round)
	}
	out := make([]netip.AddrPort, len(shares))
	for i := range slots {
		if slots[i].round == 0 { // in none of the rounds: one case in thousands
			slots[i].share, waiting = waiting[0], waiting[1:]
		}
		out[i] = shares[slots[i].share].endpoint
	}
	return out
}

// share is one of the slots that an endpoint takes.
type share struct {
	endpoint netip.AddrPort
	hash     uint64
}

// taken is a slot. The zero value is free.
type taken struct {
	share, round int
	hash         uint64
}

// sharesOf returns one share for each slot that the endpoints take, in the order of
// their addresses, by which it sorts them. The shares of a host are numbered over all of its
// ports.
func sharesOf(endpoints []model.Endpoint, s scale) []share {
	slices.SortFunc(endpoints, func(a, b model.Endpoint) int {
		return cmp.Or(a.Host.Address.Compare(b.Host.Address), cmp.Compare(a.Port, b.Port))
	})
	out := make([]share, 0, s.totalSlots(endpoints))
	var host netip.Addr
	var start Hasher
	var number [2]byte
	n := 0
	for _, e := range endpoints {
		if e.Host.Address != host {
			host, n = e.Host.Address, 0
			start = Add(fnvOffset, host.AsSlice())
		}
		for range s.slotsFor(e) {
			number = [2]byte{byte(n >> 8), byte(n)}
			out = append(out, share{e.Address(), Add(start, number[:]).MixedSum()})
			n++
		}
	}
	return out
}

// trySlots lets the waiting shares try the slot that each prefers in a round, and returns
// those that found it taken.
func trySlots(slots []taken, shares []share, waiting []int, round int) []int {
	rest := waiting[:0]
	for _, i := range waiting {
		h := preferenceOf(shares[i].hash, round)
		slot, _ := bits.Mul64(h, uint64(len(slots)))
		switch s := &slots[slot]; {
		case s.round == 0:
			*s = taken{i, round, h}
		case s.round == round && h < s.hash:
			rest = append(rest, s.share)
			*s = taken{i, round, h}
		default:
			rest = append(rest, i)
		}
	}
	return rest
}

// preferenceOf returns a number that is spread evenly for each share and round
// (SplitMix64).
func preferenceOf(hash uint64, round int) uint64 {
	h := hash + uint64(round)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
