package render

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// span is a run of slots.
type span struct{ first, count int }

// layout places the endpoints of a frontend in slots, so that those for
// clients inside of the cluster and those for clients outside are each a span.
//
//	inside:   [ inside only | both ]
//	outside:                [ both | outside only ]
//
// Where outside has nothing of its own, both come first: then all spans start
// at slot 0, and more services share a lane.
type layout struct {
	slots           []netip.AddrPort
	inside, outside span
}

// newLayout lays out the endpoints of a service port on a node. outside is
// empty where it makes no difference who connects.
func newLayout(node string, port model.PortName, inside, outside []model.Endpoint) layout {
	isIn := func(list []model.Endpoint) func(model.Endpoint) bool {
		return func(e model.Endpoint) bool {
			return slices.ContainsFunc(list, func(o model.Endpoint) bool { return o.Address == e.Address })
		}
	}
	unit := commonWeight(inside, outside)
	spread := func(in []model.Endpoint, keep func(model.Endpoint) bool) []netip.AddrPort {
		return weighted(shuffle(node, port, in, keep), unit)
	}
	if len(outside) == 0 {
		all := spread(inside, func(model.Endpoint) bool { return true })
		return layout{slots: all, inside: span{0, len(all)}}
	}
	not := func(f func(model.Endpoint) bool) func(model.Endpoint) bool {
		return func(e model.Endpoint) bool { return !f(e) }
	}
	insideOnly := spread(inside, not(isIn(outside)))
	both := spread(inside, isIn(outside))
	outsideOnly := spread(outside, not(isIn(inside)))
	if len(outsideOnly) == 0 {
		return layout{
			slots:   slices.Concat(both, insideOnly),
			inside:  span{0, len(both) + len(insideOnly)},
			outside: span{0, len(both)},
		}
	}
	return layout{
		slots:   slices.Concat(insideOnly, both, outsideOnly),
		inside:  span{0, len(insideOnly) + len(both)},
		outside: span{len(insideOnly), len(both) + len(outsideOnly)},
	}
}

// shuffle orders endpoints by a hash of node, service port and endpoint:
// otherwise a thousand nodes would all start with the same endpoint.
func shuffle(node string, port model.PortName, endpoints []model.Endpoint, keep func(model.Endpoint) bool) []model.Endpoint {
	type ranked struct {
		rank     uint64
		endpoint model.Endpoint
	}
	order := make([]ranked, 0, len(endpoints))
	start := hash(node, port.Service.Namespace, port.Service.Name, port.Port)
	var text [64]byte // longer than any address
	for _, e := range endpoints {
		if keep(e) {
			order = append(order, ranked{add(start, e.Address.AppendTo(text[:0])).sum(), e})
		}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.endpoint.Address.Compare(b.endpoint.Address))
	})
	out := make([]model.Endpoint, len(order))
	for i, r := range order {
		out[i] = r.endpoint
	}
	return out
}

func weightOf(e model.Endpoint) int { return int(cmp.Or(e.Host.Weight, 1)) }

// commonWeight returns the greatest common divisor of all weights: equal
// weights need one slot each, whatever they are.
func commonWeight(lists ...[]model.Endpoint) int {
	unit := 0
	for _, e := range slices.Concat(lists...) {
		a, b := unit, weightOf(e)
		for b != 0 {
			a, b = b, a%b
		}
		unit = a
	}
	return max(unit, 1)
}

// weighted gives each endpoint as many slots as its weight has units, spread
// evenly: of all endpoints the one takes the next slot that is furthest behind
// its share.
func weighted(endpoints []model.Endpoint, unit int) []netip.AddrPort {
	total := 0
	for _, e := range endpoints {
		total += weightOf(e) / unit
	}
	out := make([]netip.AddrPort, 0, total)
	if total == len(endpoints) {
		for _, e := range endpoints {
			out = append(out, e.Address)
		}
		return out
	}
	behind := make([]int, len(endpoints))
	for range total {
		next := 0
		for i, e := range endpoints {
			behind[i] += weightOf(e) / unit
			if behind[i] > behind[next] {
				next = i
			}
		}
		behind[next] -= total
		out = append(out, endpoints[next].Address)
	}
	return out
}
