package render

import (
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// A range of ports is one frontend. Packets that no other frontend serves, and whose
// destination has ranges, are looked up in an interval map, which puts the number of
// their range into the packet: its first port, because no two ranges of an address and
// protocol overlap. Everything else about a range is in counterparts of the other sets
// and maps, with that number in place of the port.
//
// The kernel copies an interval map of several fields at the first change of it in
// a transaction. So that map changes only with the ranges themselves, and the endpoints
// are in hash maps (measured on 6.18 with 10,000 ranges of 4 endpoints: 0.03 ms for one
// changed endpoint, and more than 25 ms with the endpoints in interval maps).
//
// The number takes the place in the packet in which other frontends have their class and
// then their slot. Hence the verdict of a range is in a map of verdicts, and its lanes
// compute the slot in the lookup of the endpoint.

var (
	// dialledRange is the key of a range before DNAT, once it is in the packet.
	dialledRange = nft.Concat{nft.DestinationAddress, nft.TransportProtocol, nft.PacketClass}
	// originalRange is the same behind DNAT.
	originalRange = nft.Concat{nft.OriginalDestination, nft.TransportProtocol, nft.PacketClass}
)

const (
	rangePreroutingChain  = nft.RangePrefix + "prerouting"
	rangeOutputChain      = nft.RangePrefix + "output"
	rangePostroutingChain = nft.RangePrefix + "postrouting"
	// What these three lead to, with the number of the range in the packet.
	rangeArrivesChain    = nft.RangePrefix + "arrives"
	rangeDispatchChain   = nft.RangePrefix + nft.DispatchChain
	rangeMasqueradeChain = nft.RangePrefix + "masquerade"
)

// counterpart returns the name of a set for frontends with a key.
func counterpart(frontend nft.Concat, set string) string {
	if isRange(frontend) {
		return nft.RangePrefix + set
	}
	return set
}

// isRange reports whether a key is that of ranges of ports.
func isRange(frontend nft.Concat) bool {
	return slices.Contains(frontend, nft.Operand(nft.PacketClass))
}

// composeRange makes the fragment of a range.
func (c *composer) composeRange(r *model.Route, inside, outside model.Decision) {
	f := r.Frontend
	key := nft.FrontendKey(f)
	c.use(option{kind: ranged})
	c.add(nft.RangeAddressesSet, nft.Element{Key: nft.Key{Address: f.Address}})
	c.add(nft.RangesMap, nft.Element{Key: nft.RangeKey(f), Value: nft.Value{Class: nft.Class(f.Port)}})
	l := c.layout(r, inside.Endpoints, outside.Endpoints)
	endpoints := endpointsOf(l)
	services, local := nft.RangeServicesMap, nft.RangeLocalServicesMap
	c.add(services, nft.Element{Key: key, Value: c.verdict(r, inside.Verdict, l.inside, endpoints), Comment: nft.Comment(r)})
	if r.Local() && inside.Verdict != model.Reject {
		c.add(local, nft.Element{Key: key, Value: c.verdict(r, outside.Verdict, l.outside, endpoints)})
	}
	c.slots(endpoints, key, firstSlot, l.slots)
	c.slots(endpoints, key, ownSlots, l.own)
}

// endpointsOf returns the map for the endpoints of a range.
func endpointsOf(l layout) string {
	for _, e := range slices.Concat(l.slots, l.own) {
		if e.Port() != 0 {
			return nft.RangePortEndpointsMap
		}
	}
	return nft.RangeEndpointsMap
}

// verdict returns the verdict of a range, and adds the lanes that it leads to.
func (c *composer) verdict(r *model.Route, v model.Verdict, s span, endpoints string) nft.Value {
	switch v {
	case model.Reject:
		return nft.Value{Verdict: nft.Verdict{Action: nft.Goto, Chain: nft.RefuseChain}}
	case model.Drop:
		return nft.Value{Verdict: nft.Verdict{Action: nft.Drop}}
	}
	port := r.PortName()
	port.Port = strconv.Itoa(int(r.Port.Port)) // a range that grows stays in its lane
	use := laneUse{lane: laneFor(port, c.schedulerOf(r), s)}
	use.lane.endpoints = endpoints
	c.useLane(use)
	return nft.Value{Verdict: nft.Verdict{Action: nft.Goto, Chain: use.name()}}
}

// rangeSets returns the empty sets and maps for ranges.
func rangeSets(r *model.Routing, o options) []*nft.Set {
	if !o.has(ranged) {
		return nil
	}
	return []*nft.Set{
		nft.Declare(nft.RangeAddressesSet),
		nft.Declare(nft.RangesMap),
		counted(nft.RangeServicesMap, r.Counters),
		counted(nft.RangeLocalServicesMap, r.Counters),
		counted(nft.RangeEndpointsMap, r.EndpointCounters),
		counted(nft.RangePortEndpointsMap, r.EndpointCounters),
		nft.Declare(nft.RangePrefix + nft.FirewalledSet),
		nft.Declare(nft.RangePrefix + nft.SourceRangesSet),
		nft.Declare(nft.RangePrefix + nft.MasqFrontendsSet),
		nft.Declare(nft.RangePrefix + nft.LocalFrontendsSet),
		nft.Declare(nft.RangePrefix + nft.HairpinSet),
	}
}

// toRange continues in a chain for ranges.
//
//	ip daddr @range-addresses goto range-prerouting
func toRange(address nft.Field, action nft.Action, chain string) nft.Rule {
	return nft.Rule{nft.InSet{Key: nft.Concat{address}, Set: nft.RangeAddressesSet}, nft.Verdict{Action: action, Chain: chain}}
}

// numbered puts the number of the range into the packet and continues in a chain. It is
// one rule, so that a packet of no range does not get there with a number of its own.
//
//	meta priority set ip daddr . meta l4proto . th dport map @ranges goto range-arrives
func numbered(frontend nft.Concat, chain string) nft.Rule {
	return nft.Rule{nft.Classify{Key: frontend, Map: nft.RangesMap}, nft.Verdict{Action: nft.Goto, Chain: chain}}
}

// rangeChains returns the counterparts of prerouting, output, dispatch and postrouting.
func rangeChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	if !o.has(ranged) {
		return nil
	}
	verdict := func(services string) nft.Rule { return nft.Rule{nft.VerdictMap{Key: dialledRange, Map: services}} }
	local, _ := notFromPod(f, r)
	local = append(local, verdict(nft.RangeLocalServicesMap)...)
	guards, dispatch := append(firewall(dialledRange, o), toLimits(dialledRange, o)...), verdict(nft.RangeServicesMap)
	return append(rangeMasquerading(),
		&nft.Chain{Name: rangePreroutingChain, Rules: []nft.Rule{numbered(dialled, rangeArrivesChain)}},
		&nft.Chain{Name: rangeArrivesChain, Rules: append(guards[:len(guards):len(guards)], local, dispatch)},
		&nft.Chain{Name: rangeOutputChain, Rules: []nft.Rule{numbered(dialled, rangeDispatchChain)}},
		&nft.Chain{Name: rangeDispatchChain, Rules: append(guards[:len(guards):len(guards)], dispatch)})
}

// rangeMasquerading returns the counterpart of postrouting. Frontends with a port that
// is inside of a range have policy Local here: the rules before masquerade the rest.
func rangeMasquerading() []*nft.Chain {
	hairpin := nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.TransportProtocol}
	in := func(set string) nft.Rule { return nft.Rule{nft.InSet{Key: originalRange, Set: nft.RangePrefix + set}} }
	find := append(leave(original, nft.LocalFrontendsSet), nft.Rule{nft.InSet{Key: hairpin, Set: nft.RangePrefix + nft.HairpinSet}, nft.Masquerade{}})
	for _, p := range model.Protocols {
		find = append(find, append(nft.Rule{nft.ProtocolIs{Protocol: p}}, numbered(original, rangeMasqueradeChain)...))
	}
	return []*nft.Chain{
		{Name: rangePostroutingChain, Rules: find},
		{Name: rangeMasqueradeChain, Rules: []nft.Rule{
			append(in(nft.MasqFrontendsSet), nft.Declassify{}, nft.Masquerade{}),
			append(in(nft.LocalFrontendsSet), nft.SourceIsLocal{}, nft.Declassify{}, nft.Masquerade{}),
			{nft.Declassify{}},
		}},
	}
}
