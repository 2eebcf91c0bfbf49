package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

var (
	// dialled has the keys of frontends before DNAT, by their shape: the client's
	// destination. The number of a range is in the packet.
	dialled = [...]nft.Concat{
		nft.OfPort:  {nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort},
		nft.OfNode:  {nft.AnyDestination, nft.TransportProtocol, nft.DestinationPort},
		nft.OfRange: {nft.DestinationAddress, nft.TransportProtocol, nft.PacketClass},
	}
	// original has the same behind DNAT, from the conntrack entry.
	original = [...]nft.Concat{
		nft.OfPort:  {nft.OriginalDestination, nft.TransportProtocol, nft.OriginalPort},
		nft.OfNode:  {nft.AnyOriginalDestination, nft.TransportProtocol, nft.OriginalPort},
		nft.OfRange: {nft.OriginalDestination, nft.TransportProtocol, nft.PacketClass},
	}
)

// toShape matches packets to the frontends of a shape that are in a set.
func toShape(s nft.Shape, set string) nft.InSet { return nft.InSet{Key: dialled[s], Set: s.Set(set)} }

// fromShape matches packets that were sent to these, behind DNAT.
func fromShape(s nft.Shape, set string) nft.InSet {
	return nft.InSet{Key: original[s], Set: s.Set(set)}
}

// fixedChains returns the chains that are the same for every set of services: all except
// the lanes. Chains of options exist only while these are in use.
func fixedChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	var sources []*nft.Chain
	if own := r.MasqueradeFrom[f]; len(own) > 0 {
		sources = append(sources, snatChain(nft.SNATChain, own))
	}
	return slices.Concat(
		[]*nft.Chain{refuseChain(), chooseChain(nft.OfPort, r.Observe), dispatchChain(nft.OfPort)},
		limitChains(r.Observe, o),
		clientChains(f, r.Observe, o),
		nodeChains(f, r, o),
		rangeChains(f, r, o),
		echoChains(f, r),
		[]*nft.Chain{newPreroutingChain(f, r, o), newOutputChain(f, r, o)},
		unservedChains(r),
		affinityChains(r, o.bindingMaps()),
		refusalChains(r, o),
		sampleChains(r, o),
		watchChains(r, o),
		relayInput(o),
		sources,
		[]*nft.Chain{newDeclassifyChain(f, r, o), newPostroutingChain(f, r, o)})
}

func emptySets(r *model.Routing, o options) []*nft.Set {
	out := []*nft.Set{
		declareCounted(nft.ServicesMap, r.Counters),
		declareCounted(nft.LocalServicesMap, r.Counters),
		nft.Declare(nft.LanesMap),
		declareCounted(nft.EndpointsMap, r.EndpointCounters),
	}
	out = append(out, frontendSets(nft.OfPort)...)
	out = append(out, declareSets(nft.ClusterIPsSet, nft.ServiceCIDRsSet, nft.HairpinSet)...)
	if r.Wildcards {
		out = append(out, nft.Declare(nft.NodeAddressesSet))
	}
	if len(r.LoadBalancerCIDRs) > 0 {
		out = append(out, declareSets(nft.LoadBalancerIPsSet, nft.LoadBalancerCIDRsSet)...)
	}
	ofKind := func(k optionKind, name func(nft.Shape) string) {
		for _, p := range o.ofKind(k) {
			out = append(out, nft.Declare(name(p.shape)))
		}
	}
	ofKind(self, func(s nft.Shape) string { return s.Set(nft.SelfFrontendsSet) })
	ofKind(sourced, func(s nft.Shape) string { return s.Set(nft.SNATFrontendsMap) })
	if len(r.AnswerFrom) > 0 {
		out = append(out, declareSets(nft.EchoSet, nft.EchoInsideSet, nft.EchoFirewalledSet, nft.EchoSourcesSet, nft.EchoDeniedSet)...)
	}
	out = slices.Concat(out, guardSets(nft.OfPort, o), rangeSets(r, o), guardSets(nft.OfRange, o), affinitySets(o.bindingMaps(), r.AffinityCapacity), refusalSets(r, o), sampleSets(r))
	ofKind(observed, observedSet)
	return out
}

// declareDynamic declares a set that packets fill, with the most elements. Without timeouts, its elements stay.
func declareDynamic(name string, size uint32, timeless bool) *nft.Set {
	s := nft.Declare(name)
	s.Dynamic, s.Timeless, s.Size = true, timeless, size
	return s
}

func declareSets(names ...string) (out []*nft.Set) {
	for _, name := range names {
		out = append(out, nft.Declare(name))
	}
	return out
}

// frontendSets returns the empty sets of frontends of a shape that are always there.
func frontendSets(s nft.Shape) []*nft.Set {
	return declareSets(s.Set(nft.FirewalledSet), s.Set(nft.SourceRangesSet), s.Set(nft.MasqFrontendsSet), s.Set(nft.LocalFrontendsSet))
}

func declareCounted(name string, counters bool) *nft.Set {
	s := nft.Declare(name)
	s.Counters = counters
	return s
}

func refuseChain() *nft.Chain {
	return &nft.Chain{Name: nft.RefuseChain, Rules: []nft.Rule{
		// Both mean "connection refused" to a TCP client, but the kernel limits the
		// rate of ICMP errors, and a client on this node loses an ICMPv6 error that
		// arrives while connect holds the socket: it would retry only after a second.
		{nft.ProtocolIs{Protocol: model.TCP}, nft.Reset},
		{nft.Refuse},
	}}
}

// chooseChain returns the chain that sends a connection to the endpoint in a slot. It is the
// only one with these frontends that refers to the map of endpoints: the kernel walks
// all elements of a map for a rule that is bound to it, and all such rules for
// an element. If the slot is empty it clears the field that it borrowed.
func chooseChain(s nft.Shape, o model.Observe) *nft.Chain {
	return &nft.Chain{Name: s.Chain(nft.ChooseChain), Rules: append(toSample(o),
		nft.Rule{nft.DNAT{Key: append(dialled[s][:3:3], nft.PacketClass), Map: nft.EndpointsMap}},
		nft.Rule{nft.Declassify})}
}

func dispatchChain(s nft.Shape) *nft.Chain {
	return &nft.Chain{Name: s.Chain(nft.DispatchChain), Rules: []nft.Rule{classifyRule(s, nft.ServicesMap)}}
}

// classifyRule continues in the lane of a frontend. Its class is data, not a verdict: when
// an element with a verdict is added, the kernel validates the table and visits all
// elements of all verdict maps.
//
//	meta priority set ip daddr . meta l4proto . th dport map @services meta priority vmap @lanes
func classifyRule(s nft.Shape, services string) nft.Rule {
	return nft.Rule{
		nft.Classify{Key: dialled[s], Map: services},
		nft.VerdictMap{Key: nft.Concat{nft.PacketClass}, Map: nft.LanesMap},
	}
}

// unservedChains returns the chains for addresses of ours without a frontend. They come
// behind all foreign nat chains, so another program can serve one of these addresses: packets
// that it has translated do not reach the chains, whether it started before nftproxy or after.
func unservedChains(r *model.Routing) []*nft.Chain {
	to := nft.Concat{nft.DestinationAddress}
	refuse, drop := refusalVerdict(r.Observe, model.UnknownPort, nft.OfPort), refusalVerdict(r.Observe, model.UnusedAddress, nft.OfPort)
	rules := []nft.Rule{
		// An undefined port of a ClusterIP, or another protocol (4.23).
		{nft.InSet{Key: to, Set: nft.ClusterIPsSet}, refuse},
		// An address of a service CIDR without a Service (4.24).
		{nft.InSet{Key: to, Set: nft.ServiceCIDRsSet}, drop},
	}
	if len(r.LoadBalancerCIDRs) > 0 {
		// The same for external addresses (4.71), except those of this node (4.72). What the
		// node itself sends to an unused one may lead to another machine, and does not come back.
		rules = append(rules,
			nft.Rule{nft.InSet{Key: to, Set: nft.LoadBalancerIPsSet}, nft.DestinationNotLocal, refuse},
			nft.Rule{nft.InSet{Key: to, Set: nft.LoadBalancerCIDRsSet}, nft.CameIn, nft.DestinationNotLocal, drop})
	}
	// A client that has waited since before there was a nat chain is not refused: no rule
	// can translate its packets until its entry is deleted (9.42).
	known := nft.Rule{nft.Known, nft.Verdict{Action: nft.Accept}}
	return []*nft.Chain{
		{Name: nft.UnservedChain, Rules: rules},
		{Name: "unserved-prerouting", Hook: nft.Prerouting, Priority: nft.PriorityUnserved, Rules: []nft.Rule{
			known,
			{nft.Verdict{Action: nft.Goto, Chain: nft.UnservedChain}},
		}},
		{Name: "unserved-output", Hook: nft.Output, Priority: nft.PriorityUnserved, Rules: []nft.Rule{
			{nft.IsAnswer, nft.Verdict{Action: nft.Accept}},
			known,
			{nft.Verdict{Action: nft.Goto, Chain: nft.UnservedChain}},
		}},
	}
}

// newPreroutingChain first looks up clients outside of the cluster: all that are not pods,
// because packets of the node itself do not pass here.
func newPreroutingChain(f model.Family, r *model.Routing, o options) *nft.Chain {
	local, _ := notFromPod(f, r)
	local = append(local, classifyRule(nft.OfPort, nft.LocalServicesMap)...)
	return &nft.Chain{Name: preroutingChain, Hook: nft.Prerouting, Priority: nft.PriorityDNAT,
		Rules: slices.Concat(guardRules(nft.OfPort, r.Observe, o), []nft.Rule{local}, toDispatch(r, o, preroutingChain, toEcho(f, r, echoPreroutingChain)))}
}

// maxInterfaceName is the length of the longest interface name (the kernel's IFNAMSIZ
// less the final NUL).
const maxInterfaceName = 15

// notFromPod matches packets that the detector does not recognise, and reports whether
// there is a detector. Without one, and with one for impossible interfaces (7.6),
// nothing is recognised.
func notFromPod(f model.Family, r *model.Routing) (match nft.Rule, detects bool) {
	d, ok := r.Detectors[f]
	switch {
	case !ok:
		return nil, false
	case d.Prefix.IsValid():
		return nft.Rule{nft.SourceNotIn{Prefix: d.Prefix}}, true
	case len(d.Interface) > maxInterfaceName:
		return nil, true
	}
	// A prefix of this length is the whole name.
	return nft.Rule{nft.NotFrom{Name: d.Interface, ByPrefix: d.ByPrefix && len(d.Interface) < maxInterfaceName}}, true
}

func newOutputChain(f model.Family, r *model.Routing, o options) *nft.Chain {
	// A reset that refuses a connection of the node itself passes here too. Its
	// port can be the port of a frontend, which would refuse the reset.
	answers := nft.Rule{nft.IsAnswer, nft.Verdict{Action: nft.Accept}}
	return &nft.Chain{Name: outputChain, Hook: nft.Output, Priority: nft.PriorityDNAT,
		Rules: slices.Concat([]nft.Rule{answers}, guardRules(nft.OfPort, r.Observe, o), toDispatch(r, o, outputChain, toEcho(f, r, nft.EchoChain)))}
}

// newDeclassifyChain clears the slot that a packet still has, before another program can translate
// its source, which would end the hook. A forwarded packet of IPv4 has none any more: the
// kernel has given it the priority of its type of service (ip_forward). Packets that were
// not translated keep theirs. A translation that changes nothing does not count as one, so
// frontends that are their own endpoint are in a set.
//
//	iif != 0 accept
//	ip daddr . meta l4proto . th dport @self-frontends meta priority set none
//	ct status ! dnat accept
//	meta priority set none
func newDeclassifyChain(f model.Family, r *model.Routing, o options) *nft.Chain {
	accept := nft.Verdict{Action: nft.Accept}
	rules := append(toPassage(r), toWatch(o)...)
	if o.hasKind(sticky) { // whose connections have the class of their affinity
		rules = append(rules, nft.Rule{nft.Verdict{Action: nft.Jump, Chain: nft.RememberChain}})
	}
	if f == model.IPv4 {
		rules = append(rules, nft.Rule{nft.CameIn, accept})
	}
	for _, p := range o.ofKind(self) {
		rules = append(rules, nft.Rule{toShape(p.shape, nft.SelfFrontendsSet), nft.Declassify})
	}
	rules = append(rules, nft.Rule{nft.NotTranslated, accept}, nft.Rule{nft.Declassify})
	return &nft.Chain{Name: "early-postrouting", Hook: nft.Postrouting, Priority: nft.PriorityEarly, Rules: rules}
}

// newPostroutingChain decides from the conntrack entry whether to masquerade, so no packet
// mark is needed (8.6).
func newPostroutingChain(f model.Family, r *model.Routing, o options) *nft.Chain {
	rules := append([]nft.Rule{{nft.NotTranslated, nft.Verdict{Action: nft.Accept}}}, toSources(nft.OfPort, o)...)
	rules = append(rules, nft.Rule{
		nft.InSet{Key: nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort}, Set: nft.HairpinSet}, masqueradeStatement(f, r),
	})
	if own := masqueradeClusterIPs(f, r); len(own) > 0 {
		rules = slices.Concat(rules, keepEchoSource(f, r), own)
	}
	rules = append(rules, masqueradeExternal(nft.OfPort, masqueradeStatement(f, r))...)
	rules = append(rules, toOthers(r, o, nft.OriginalDestination, postroutingChain, false)...)
	return &nft.Chain{Name: postroutingChain, Hook: nft.Postrouting, Priority: nft.PrioritySNAT, Rules: rules}
}

// masqueradeExternal masquerades traffic to external addresses and NodePorts: all of
// it, or the node's own traffic where clients keep their address.
func masqueradeExternal(s nft.Shape, masquerade nft.Statement) []nft.Rule {
	var rules []nft.Rule
	for _, p := range model.Protocols {
		rules = append(rules,
			nft.Rule{nft.ProtocolIs{Protocol: p}, fromShape(s, nft.MasqFrontendsSet), masquerade},
			nft.Rule{nft.ProtocolIs{Protocol: p}, fromShape(s, nft.LocalFrontendsSet), nft.SourceIsLocal, masquerade})
	}
	return rules
}

// masqueradeClusterIPs masquerades traffic to ClusterIPs that does not come from pods,
// or all of it (4.26). Without a detector it masquerades none (4.27).
func masqueradeClusterIPs(f model.Family, r *model.Routing) []nft.Rule {
	match, detects := notFromPod(f, r)
	if !detects && !r.MasqueradeAll {
		return nil
	}
	masquerade := nft.Rule{nft.InSet{Key: nft.Concat{nft.OriginalDestination}, Set: nft.ClusterIPsSet}, masqueradeStatement(f, r)}
	if r.MasqueradeAll || len(match) == 0 {
		return []nft.Rule{masquerade}
	}
	pods, byInterface := match[0].(nft.NotFrom)
	if !byInterface {
		return []nft.Rule{append(match, masquerade...)}
	}
	// A packet that a bridge forwards has no input interface here if the bridge calls
	// iptables. It then comes from a pod if its output interface is the pods' bridge.
	rule := func(s nft.Statement) nft.Rule { return append(nft.Rule{pods, s}, masquerade...) }
	return []nft.Rule{
		rule(nft.CameIn),
		rule(nft.NotTo(pods)),
		rule(nft.SourceIsLocal),
	}
}
