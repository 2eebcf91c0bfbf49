package placement

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// NewMaglev lays out the endpoints of a Service for the schedulers maglev and
// maglev-port. Clients outside of the cluster have a table of their own if they have
// other endpoints: part of a table is not a table of fewer endpoints.
func NewMaglev(s *model.Service, inside, outside []model.Endpoint) Layout {
	slots := maglevTable(inside, s.MaglevSize(len(inside)))
	l := Layout{Slots: slots, Inside: Span{nft.FirstSlot, len(slots)}}
	if len(outside) == 0 {
		return l
	}
	l.Own = maglevTable(outside, s.MaglevSize(len(outside)))
	l.Outside = Span{nft.OwnSlots, len(l.Own)}
	if slices.Equal(l.Own, l.Slots) {
		l.Own, l.Outside = nil, l.Inside
	}
	return l
}

func maglevSlots(s *model.Service, endpoints []model.Endpoint) func(model.Endpoint) int {
	slots := make(map[netip.AddrPort]int, len(endpoints))
	for _, e := range maglevTable(endpoints, s.MaglevSize(len(endpoints))) {
		slots[e]++
	}
	return func(e model.Endpoint) int { return slots[e.Address()] }
}

// maglevTable returns the table of some endpoints: the endpoint of each slot. It depends only
// on the endpoints, their weights and the size, which is prime. One endpoint needs one
// slot. With more endpoints than slots, those last in the order have none.
//
// Each endpoint has an order of preference of all slots, and they take turns to take the
// next one that is free (Eisenbud and others, "Maglev: A Fast and Reliable Software
// Network Load Balancer", 2016, section 3.4). An endpoint of the highest weight has a
// turn in each round, one of half that weight in every other round, and all have one in
// the first.
func maglevTable(endpoints []model.Endpoint, size int) []netip.AddrPort {
	if len(endpoints) < 2 {
		size = len(endpoints)
	}
	all := takersOf(endpoints, uint32(size))
	heaviest := 0
	for i := range all {
		heaviest = max(heaviest, all[i].weight)
	}
	table := make([]netip.AddrPort, size)
	for free, round := size, 0; free > 0; round++ {
		for i := 0; i < len(all) && free > 0; i++ {
			if t := &all[i]; t.due <= round*t.weight {
				t.due += heaviest
				t.takeSlot(table)
				free--
			}
		}
	}
	return table
}

// taker is an endpoint that takes slots of a table.
type taker struct {
	endpoint   netip.AddrPort
	hash       uint64
	next, step uint32 // slot that it prefers, and from one preferred slot to the next
	weight     int
	due        int // in units of rounds times the weight, when the next turn is
}

// takersOf returns endpoints in an order that others do not change: by a hash of the host,
// or of its number among the endpoints of the host. So the table for another port of the same
// hosts is the same.
func takersOf(endpoints []model.Endpoint, size uint32) []taker {
	all := sharesOf(slices.Clone(endpoints), scale{1, maxWeight})
	out := make([]taker, len(all))
	weights := make(map[netip.AddrPort]int, len(all))
	for _, e := range endpoints {
		weights[e.Address()] = e.Weight()
	}
	for i, s := range all {
		out[i] = taker{
			endpoint: s.endpoint, hash: s.hash, weight: weights[s.endpoint],
			next: uint32(preferenceOf(s.hash, 1) % uint64(size)), step: uint32(preferenceOf(s.hash, 2)%uint64(max(size-1, 1))) + 1,
		}
	}
	slices.SortFunc(out, func(a, b taker) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.endpoint.Compare(b.endpoint)) })
	return out
}

func (t *taker) takeSlot(table []netip.AddrPort) {
	size := uint32(len(table))
	for table[t.next].IsValid() {
		if t.next += t.step; t.next >= size {
			t.next -= size
		}
	}
	table[t.next] = t.endpoint
}
