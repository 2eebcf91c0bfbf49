package render

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// counters is the number of lanes for each number of endpoints.
//
// A round robin counter belongs to a rule. If all services with n endpoints
// shared one, a client that calls A, B, A, B... would see A on the same
// endpoint for ever. So they are spread over several; 16 keep two services
// apart in 15 of 16 cases at a cost of 16 rules that refer to the endpoints
// map (binding costs grow with that number).
const counters = 16

// lane names the chain that picks the next of n slots with one of the
// counters. It depends on nothing but its arguments, so that a dry run shows
// what a node does.
func lane(port model.PortName, n int) string {
	k := uint64(0)
	if n > 1 { // a single slot needs no counter
		k = hash(port.Service.Namespace, port.Service.Name, port.Port, port.Protocol.String()) % counters
	}
	return fmt.Sprintf("rr-%d-%d", n, k)
}

// laneChain returns the chain of a lane for n slots.
func laneChain(name string, n int) *Chain {
	return &Chain{Name: name, Rules: []Rule{
		// dnat ip to ip daddr . meta l4proto . th dport . numgen inc mod 3 map @endpoints
		{DNAT{Key: append(slices.Clone(dialled), Numgen{uint32(n)}), Map: "endpoints"}},
	}}
}

// slots returns the endpoints in the order of their slots. The order is
// shuffled by node and service port: otherwise a thousand nodes would all
// start with the same endpoint.
func slots(node string, port model.PortName, endpoints []netip.AddrPort) []netip.AddrPort {
	type ranked struct {
		rank     uint64
		endpoint netip.AddrPort
	}
	order := make([]ranked, len(endpoints))
	for i, e := range endpoints {
		order[i] = ranked{hash(node, port.Service.Namespace, port.Service.Name, port.Port, e.String()), e}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.endpoint.Compare(b.endpoint))
	})
	out := make([]netip.AddrPort, len(order))
	for i, r := range order {
		out[i] = r.endpoint
	}
	return out
}

// hash returns a hash of the parts that differs between ("ab", "c") and
// ("a", "bc"). It is the same on every machine and in every release: lanes and
// slots must not move when nftproxy is upgraded.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) // never fails
		_, _ = h.Write([]byte(s))
	}
	// The low bits of FNV depend on the low bits of the text alone, so that
	// similar names would meet in one lane: mix the high bits in.
	sum := h.Sum64()
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	return sum ^ sum>>33
}
