package placement

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Span is consecutive slots.
type Span struct{ First, Count int }

// Layout places the endpoints of a frontend in slots, so that those for clients inside
// of the cluster and those for clients outside are each a span. Both start at slot 1 if
// clients outside have some of the endpoints inside, which come first. If they have
// others, too, or with shares of a zone floor inside, they have slots of their own.
type Layout struct {
	Slots           []netip.AddrPort // from [nft.FirstSlot] on
	Own             []netip.AddrPort // from [nft.OwnSlots] on
	Inside, Outside Span
}

func (l Layout) EndpointsIn(s Span) []netip.AddrPort {
	if s.First == nft.OwnSlots {
		return l.Own[:s.Count]
	}
	return l.Slots[:s.Count]
}

// New lays out the endpoints of a service port on a node. outside is empty if
// all clients have the same endpoints.
func New(node string, port model.PortName, scheduler model.Scheduler, inside, outside []model.Endpoint) Layout {
	if len(inside) == 1 && len(outside) == 0 { // has no other order
		return Layout{Slots: []netip.AddrPort{inside[0].Address()}, Inside: Span{nft.FirstSlot, 1}}
	}
	isIn := func(list []model.Endpoint) func(model.Endpoint) bool {
		in := make(map[netip.AddrPort]bool, len(list))
		for _, e := range list {
			in[e.Address()] = true
		}
		return func(e model.Endpoint) bool { return in[e.Address()] }
	}
	scale := newScale(inside, outside)
	spread := func(in []model.Endpoint, keep func(model.Endpoint) bool) []netip.AddrPort {
		var all []netip.AddrPort
		if scheduler == model.SourceHash {
			all = placeHashed(in, keep, scale)
		} else {
			var few [fewEndpoints]model.Endpoint
			all = placeWeighted(appendShuffled(few[:0], node, port, in, keep), scale)
		}
		return all[:min(len(all), nft.MaxSlots)]
	}
	all := func(model.Endpoint) bool { return true }
	if len(outside) == 0 {
		slots := spread(inside, all)
		return Layout{Slots: slots, Inside: Span{nft.FirstSlot, len(slots)}}
	}
	shares := slices.ContainsFunc(inside, func(e model.Endpoint) bool { return e.Share > 0 })
	if shares || slices.ContainsFunc(outside, negatePredicate(isIn(inside))) {
		slots, own := spread(inside, all), spread(outside, all)
		return Layout{slots, own, Span{nft.FirstSlot, len(slots)}, Span{nft.OwnSlots, len(own)}}
	}
	both := spread(inside, isIn(outside))
	slots := slices.Concat(both, spread(inside, negatePredicate(isIn(outside))))
	slots = slots[:min(len(slots), nft.MaxSlots)]
	return Layout{Slots: slots, Inside: Span{nft.FirstSlot, len(slots)}, Outside: Span{nft.FirstSlot, len(both)}}
}

func negatePredicate(f func(model.Endpoint) bool) func(model.Endpoint) bool {
	return func(e model.Endpoint) bool { return !f(e) }
}

// fewEndpoints is as many as most Services have: they are ordered without an allocation.
const fewEndpoints = 8

// appendShuffled appends endpoints in the order of a hash of node, service port and endpoint:
// otherwise a thousand nodes would start with the same endpoint.
func appendShuffled(out []model.Endpoint, node string, port model.PortName, endpoints []model.Endpoint, keep func(model.Endpoint) bool) []model.Endpoint {
	type ranked struct {
		rank     uint64
		endpoint model.Endpoint
	}
	var few [fewEndpoints]ranked
	order := slices.Grow(few[:0], len(endpoints))
	start := RankHash(node, port)
	for _, e := range endpoints {
		if keep(e) {
			order = append(order, ranked{RankOf(start, e), e})
		}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if a.rank != b.rank { // nearly always
			return cmp.Compare(a.rank, b.rank)
		}
		return a.endpoint.Address().Compare(b.endpoint.Address())
	})
	for _, r := range order {
		out = append(out, r.endpoint)
	}
	return out
}

// RankHash returns the begin of the hashes by which the endpoints of a service port are ordered on a
// node.
func RankHash(node string, port model.PortName) Hasher {
	return NewHash(node, port.Service.Namespace, port.Service.Name, port.Port)
}

func RankOf(start Hasher, e model.Endpoint) uint64 {
	var text [64]byte // longer than any address
	return Add(start, e.Address().AppendTo(text[:0])).MixedSum()
}

// commonWeight returns the greatest common divisor of all weights, so that equal
// weights need one slot each. Slow starts do not change it: while endpoints start, the others
// keep their slots.
func commonWeight(lists ...[]model.Endpoint) int {
	unit := 0
	for _, endpoints := range lists {
		for _, e := range endpoints {
			a, b := unit, e.Whole()
			for b != 0 {
				a, b = b, a%b
			}
			unit = a
		}
	}
	return max(unit, 1)
}

// scale converts weights to numbers of slots.
type scale struct{ unit, divisor int }

// Slots returns how many slots each endpoint of a service port takes in the lane of
// clients inside of the cluster, and in the lane of clients outside. outside is empty if all
// clients have the same endpoints.
func Slots(s *model.Service, scheduler model.Scheduler, inside, outside []model.Endpoint) (within, without func(model.Endpoint) int) {
	if !scheduler.IsMaglev() {
		slots := newScale(inside, outside).slotsFor
		return slots, slots
	}
	within = maglevSlots(s, inside)
	if len(outside) == 0 {
		return within, within
	}
	return within, maglevSlots(s, outside)
}

// newScale returns the scale for two lists of endpoints, which may overlap. It is exact
// if that does not take too many slots. Otherwise weights are divided by the smallest
// sufficient power of two, so that the slots of an endpoint seldom depend on the other
// endpoints. Endpoints that start slowly count with the slots that they get at last.
func newScale(inside, outside []model.Endpoint) scale {
	s := scale{commonWeight(inside, outside), 1}
	for s.divisor < maxWeight && (s.mostSlots(inside) > slotsFor(len(inside)) || s.mostSlots(outside) > slotsFor(len(outside))) {
		s.divisor *= 2
	}
	return s
}

// maxWeight is more than twice any weight: of a host, times factors of up to
// [model.ZoneShares] and [model.StartParts].
const maxWeight = 1 << 27

// slotsFor returns the most slots for a number of endpoints with unequal weights. Each
// slot is an element for each frontend, and a change of an endpoint changes all of its
// slots.
func slotsFor(endpoints int) int {
	return max(512, min(budget.WeightSlotsEach*endpoints, budget.WeightSlots), 4*endpoints)
}

func (s scale) slotsFor(e model.Endpoint) int {
	return max(1, (e.Weight()/s.unit+s.divisor/2)/s.divisor)
}

// mostSlots returns the slots of endpoints at the end of slow starts.
func (s scale) mostSlots(endpoints []model.Endpoint) int {
	n := 0
	for _, e := range endpoints {
		if e.Part > 0 {
			e.Part = model.StartParts
		}
		n += s.slotsFor(e)
	}
	return n
}

func (s scale) totalSlots(endpoints []model.Endpoint) int {
	n := 0
	for _, e := range endpoints {
		n += s.slotsFor(e)
	}
	return n
}

// placeWeighted gives each endpoint its number of slots, spread evenly: the k-th of n slots
// of an endpoint comes after the (2k-1)/2n-th part of all.
func placeWeighted(endpoints []model.Endpoint, s scale) []netip.AddrPort {
	type slot struct {
		place, of int // place/of is the part
		endpoint  int
	}
	total := s.totalSlots(endpoints)
	out := make([]netip.AddrPort, total)
	if total == len(endpoints) {
		for i, e := range endpoints {
			out[i] = e.Address()
		}
		return out
	}
	order := make([]slot, 0, total)
	for i, e := range endpoints {
		n := s.slotsFor(e)
		for k := range n {
			order = append(order, slot{2*k + 1, 2 * n, i})
		}
	}
	slices.SortFunc(order, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.place*b.of, b.place*a.of), cmp.Compare(a.endpoint, b.endpoint))
	})
	for i, o := range order {
		out[i] = endpoints[o.endpoint].Address()
	}
	return out
}
