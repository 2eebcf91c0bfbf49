package render

import (
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

const (
	// The chains at the hooks lead to these, with the number of the range in the packet.
	arrivesChain    = "arrives"
	masqueradeChain = "masquerade"
)

func (c *composer) addRange(f model.Frontend) {
	c.useOption(option{kind: ranged})
	c.add(nft.RangeAddressesSet, nft.Element{Key: nft.Key{Address: f.Address}})
	c.add(nft.RangesMap, nft.Element{Key: nft.RangeKey(f), Value: nft.Value{Class: nft.Class(f.Port)}})
}

// rangeEndpoints returns the map for the endpoints of a range, which have one port or that
// which the client dialled.
func rangeEndpoints(onePort bool) string {
	if onePort {
		return nft.RangePortEndpointsMap
	}
	return nft.RangeEndpointsMap
}

func rangeSets(r *model.Routing, o options) []*nft.Set {
	if !o.hasKind(ranged) {
		return nil
	}
	own := append(declareSets(nft.RangeAddressesSet, nft.RangesMap),
		declareCounted(nft.RangeServicesMap, r.Counters),
		declareCounted(nft.RangeLocalServicesMap, r.Counters),
		declareCounted(nft.RangeEndpointsMap, r.EndpointCounters),
		declareCounted(nft.RangePortEndpointsMap, r.EndpointCounters))
	return append(append(own, frontendSets(nft.OfRange)...), nft.Declare(nft.OfRange.Set(nft.HairpinSet)))
}

// classifyRange puts the number of the range into the packet and continues in a chain. It is
// one rule, so that a packet of no range does not get there with a number of its own.
//
//	meta priority set ip daddr . meta l4proto . th dport map @ranges goto range-arrives
func classifyRange(port nft.Concat, chain string) nft.Rule {
	return nft.Rule{nft.Classify{Key: port, Map: nft.RangesMap}, nft.Verdict{Action: nft.Goto, Chain: nft.OfRange.Chain(chain)}}
}

// rangeChains returns the counterparts of prerouting, output, dispatch and postrouting.
func rangeChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	if !o.hasKind(ranged) {
		return nil
	}
	verdict := func(services string) nft.Rule {
		return nft.Rule{nft.VerdictMap{Key: dialled[nft.OfRange], Map: services}}
	}
	find := func(chain string) []nft.Rule { return []nft.Rule{classifyRange(dialled[nft.OfPort], chain)} }
	local, _ := notFromPod(f, r)
	local = append(local, verdict(nft.RangeLocalServicesMap)...)
	guards, dispatch := guardRules(nft.OfRange, r.Observe, o), verdict(nft.RangeServicesMap)
	return append(rangeMasquerading(o, masqueradeStatement(f, r)),
		&nft.Chain{Name: nft.OfRange.Chain(preroutingChain), Rules: find(arrivesChain)},
		&nft.Chain{Name: nft.OfRange.Chain(arrivesChain), Rules: append(guards[:len(guards):len(guards)], local, dispatch)},
		&nft.Chain{Name: nft.OfRange.Chain(outputChain), Rules: find(nft.DispatchChain)},
		&nft.Chain{Name: nft.OfRange.Chain(nft.DispatchChain), Rules: append(guards[:len(guards):len(guards)], dispatch)})
}

// rangeMasquerading returns the counterpart of postrouting. Frontends with a port that
// is inside of a range have policy Local here: the rules before masquerade the rest.
func rangeMasquerading(o options, masquerade nft.Statement) []*nft.Chain {
	hairpin := nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.TransportProtocol}
	find := append(acceptLocal(nft.OfPort), nft.Rule{nft.InSet{Key: hairpin, Set: nft.OfRange.Set(nft.HairpinSet)}, masquerade})
	for _, p := range model.Protocols {
		find = append(find, append(nft.Rule{nft.ProtocolIs{Protocol: p}}, classifyRange(original[nft.OfPort], masqueradeChain)...))
	}
	return []*nft.Chain{
		{Name: nft.OfRange.Chain(postroutingChain), Rules: find},
		{Name: nft.OfRange.Chain(masqueradeChain), Rules: append(toSources(nft.OfRange, o),
			nft.Rule{fromShape(nft.OfRange, nft.MasqFrontendsSet), nft.Declassify{}, masquerade},
			nft.Rule{fromShape(nft.OfRange, nft.LocalFrontendsSet), nft.SourceIsLocal{}, nft.Declassify{}, masquerade},
			nft.Rule{nft.Declassify{}})},
	}
}
