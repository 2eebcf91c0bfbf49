package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// A NodePort that is served on several addresses of the node is one frontend with the
// unspecified address. The addresses are elements of one set, so each added or removed
// address is one change.
//
// The elements of these frontends are in the same sets and maps as all others, with
// the unspecified address in their keys. Only the rules that look them up differ: they
// mask the address of the packet. They come behind those for frontends with a specific
// address, which win (4.37), and only see packets to the addresses in the set.
// A ClusterIP serves no NodePorts even if an interface of the node has it, because its
// undefined ports are refused (4.23).

const (
	preroutingChain  = "prerouting"
	outputChain      = "output"
	postroutingChain = "postrouting"
)

// toDispatch ends a chain: packets that no frontend with their address and port serves
// continue in a chain for NodePorts, and then in one for ranges, if there are any, or with
// the rules behind these.
func toDispatch(r *model.Routing, o options, chain string, behind []nft.Rule) []nft.Rule {
	if !r.Wildcards && !o.hasKind(ranged) && len(behind) == 0 {
		return []nft.Rule{{nft.Verdict{Action: nft.Goto, Chain: nft.DispatchChain}}}
	}
	others := toOthers(r, o, nft.DestinationAddress, chain, len(behind) > 0)
	return slices.Concat([]nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: nft.DispatchChain}}}, others, behind)
}

// toOthers continues in the counterparts of a chain for NodePorts and for ranges. It comes
// back if there is more behind them.
//
//	ip daddr @node-addresses ip daddr != @cluster-ips goto node-dispatch
//	ip daddr @range-addresses goto range-prerouting
func toOthers(r *model.Routing, o options, address nft.Field, chain string, more bool) (rules []nft.Rule) {
	verdict := func(s nft.Shape, chain string, more bool) nft.Verdict {
		if more {
			return nft.Verdict{Action: nft.Jump, Chain: s.Chain(chain)}
		}
		return nft.Verdict{Action: nft.Goto, Chain: s.Chain(chain)}
	}
	if r.Wildcards {
		own := chain
		if chain == outputChain && len(guardRules(nft.OfNode, r.Observe, o)) == 0 {
			own = nft.DispatchChain
		}
		rules = append(rules, nft.Rule{
			nft.InSet{Key: nft.Concat{address}, Set: nft.NodeAddressesSet},
			nft.InSet{Key: nft.Concat{address}, Set: nft.ClusterIPsSet, Not: true}, verdict(nft.OfNode, own, more || o.hasKind(ranged)),
		})
	}
	if o.hasKind(ranged) {
		rules = append(rules, nft.Rule{nft.InSet{Key: nft.Concat{address}, Set: nft.RangeAddressesSet}, verdict(nft.OfRange, chain, more)})
	}
	return rules
}

// nodeChains returns the counterparts of choose, dispatch, prerouting, output and postrouting.
// The one of output exists only while it has a rule of its own.
func nodeChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	if !r.Wildcards {
		return nil
	}
	local, _ := notFromPod(f, r)
	local = append(local, classifyRule(nft.OfNode, nft.LocalServicesMap)...)
	guards, next := guardRules(nft.OfNode, r.Observe, o), nft.Rule{nft.Verdict{Action: nft.Goto, Chain: nft.OfNode.Chain(nft.DispatchChain)}}
	var output []*nft.Chain
	if len(guards) > 0 {
		output = []*nft.Chain{{Name: nft.OfNode.Chain(outputChain), Rules: append(guards[:len(guards):len(guards)], next)}}
	}
	masquerade := append(acceptLocal(nft.OfPort), masqueradeExternal(nft.OfNode, masqueradeStatement(f, r))...)
	if o.hasKind(ranged) { // whose rules come behind
		masquerade = append(masquerade, acceptLocal(nft.OfNode)...)
	}
	// A packet from the network whose destination is the unspecified address finds the element of a NodePort
	// in dispatch.
	choose := chooseChain(nft.OfNode, r.Observe)
	choose.Rules = append(offNode(r.Observe), choose.Rules...)
	return append(output, []*nft.Chain{
		choose,
		dispatchChain(nft.OfNode),
		{Name: nft.OfNode.Chain(preroutingChain), Rules: append(guards[:len(guards):len(guards)], local, next)},
		// A frontend with the address and port of a NodePort has policy Local here:
		// the rules before masquerade the rest.
		{Name: nft.OfNode.Chain(postroutingChain), Rules: masquerade},
	}...)
}

// offNode drops packets to addresses that serve no NodePorts. It is in the chains that
// translate connections to NodePorts, so that others do not pass it.
//
//	ip daddr != @node-addresses drop
func offNode(observe model.Observe) []nft.Rule {
	elsewhere := nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.NodeAddressesSet, Not: true}
	return []nft.Rule{{elsewhere, refusalVerdict(observe, model.InvalidDestination, nft.OfPort)}}
}

// acceptLocal ends the hook for frontends of a shape that keep the addresses of clients.
func acceptLocal(s nft.Shape) []nft.Rule {
	var out []nft.Rule
	for _, p := range model.Protocols {
		out = append(out, nft.Rule{nft.ProtocolIs{Protocol: p}, fromShape(s, nft.LocalFrontendsSet), nft.Verdict{Action: nft.Accept}})
	}
	return out
}

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
			nft.Rule{fromShape(nft.OfRange, nft.MasqFrontendsSet), nft.Declassify, masquerade},
			nft.Rule{fromShape(nft.OfRange, nft.LocalFrontendsSet), nft.SourceIsLocal, nft.Declassify, masquerade},
			nft.Rule{nft.Declassify})},
	}
}
