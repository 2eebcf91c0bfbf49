package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

var (
	// dialled is the key of a frontend where packets come in: what a client
	// dials.
	dialled = nft.Concat{nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort}
	// original is the same behind DNAT, as connection tracking knows it.
	original = nft.Concat{nft.OriginalDestination, nft.TransportProtocol, nft.OriginalPort}
	// frontend is the type of both.
	frontend = []nft.Datatype{nft.Address, nft.InetProto, nft.Port}
)

// chains returns the chains that are the same for every set of services: all but
// the lanes. What session affinity needs is there only if services have it, of the
// kinds given: it costs memory, and time for every new connection.
func chains(f model.Family, r *model.Routing, kinds []affinity) []*nft.Chain {
	return slices.Concat(
		[]*nft.Chain{refuse(), dispatch()},
		nodeChains(f, r),
		[]*nft.Chain{prerouting(f, r), output(r)},
		unserved(),
		affinityChains(r, kinds),
		[]*nft.Chain{postrouting(f, r)})
}

// sets returns the sets and maps of a table, empty.
func sets(r *model.Routing, kinds []affinity) []*nft.Set {
	out := []*nft.Set{
		// What a frontend does: goto a lane, goto refuse, or drop.
		{Name: nft.ServicesMap, Key: frontend, Data: []nft.Datatype{nft.Verdicts}, Counters: r.Counters},
		// The same for clients outside of the cluster, where it differs.
		{Name: nft.LocalServicesMap, Key: frontend, Data: []nft.Datatype{nft.Verdicts}, Counters: r.Counters},
		// The endpoints of a frontend, numbered.
		{Name: nft.EndpointsMap, Key: append(frontend[:3:3], nft.Slot), Data: []nft.Datatype{nft.Address, nft.Port}},
		// Frontends that not everybody may use, and who may.
		{Name: nft.FirewalledSet, Key: frontend},
		{Name: nft.SourceRangesSet, Key: append(frontend[:3:3], nft.Source), Interval: true},
		// Frontends behind which every source is masqueraded, and those
		// behind which the node itself is.
		{Name: nft.MasqFrontendsSet, Key: frontend},
		{Name: nft.LocalFrontendsSet, Key: frontend},
		{Name: nft.ClusterIPsSet, Key: []nft.Datatype{nft.Address}},
		{Name: nft.ServiceCIDRsSet, Key: []nft.Datatype{nft.Address}, Interval: true},
		// Endpoints that may dial themselves: source and destination alike.
		{Name: nft.HairpinSet, Key: []nft.Datatype{nft.Source, nft.Address, nft.InetProto, nft.Port}},
	}
	if r.Wildcards {
		// Where NodePorts with the unspecified address are served.
		out = append(out, &nft.Set{Name: nft.NodeAddressesSet, Key: []nft.Datatype{nft.Address}})
	}
	return append(out, affinitySets(kinds, r.AffinityCapacity)...)
}

func refuse() *nft.Chain {
	return &nft.Chain{Name: nft.RefuseChain, Rules: []nft.Rule{
		// Both mean "connection refused" to a TCP client, but the kernel
		// limits the rate of ICMP errors, and a client on this node loses an
		// ICMPv6 error that arrives while connect still holds the socket: it
		// would wait a second for its next attempt.
		// meta l4proto tcp reject with tcp reset
		{nft.ProtocolIs{Protocol: model.TCP}, nft.Reset{}},
		// reject
		{nft.Refuse{}},
	}}
}

func dispatch() *nft.Chain {
	return &nft.Chain{Name: nft.DispatchChain, Rules: []nft.Rule{
		// ip daddr . meta l4proto . th dport vmap @services
		{nft.VerdictMap{Key: dialled, Map: nft.ServicesMap}},
	}}
}

// unserved returns the chains for addresses that are ours where no frontend is.
// They come behind the nat chains of all others, so that another program can
// serve such an address: what it has translated does not get here, whether it
// started before nftproxy or after it.
func unserved() []*nft.Chain {
	return []*nft.Chain{
		{Name: nft.UnservedChain, Rules: []nft.Rule{
			// An undefined port of a ClusterIP, or another protocol (4.23).
			// ip daddr @cluster-ips goto refuse
			{nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.ClusterIPsSet}, nft.Verdict{Action: nft.Goto, Chain: nft.RefuseChain}},
			// An address of a service CIDR that no Service has (4.24).
			// ip daddr @service-cidrs drop
			{nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.ServiceCIDRsSet}, nft.Verdict{Action: nft.Drop}},
		}},
		{Name: "unserved-prerouting", Hook: nft.Prerouting, Priority: nft.PriorityUnserved, Rules: []nft.Rule{
			{nft.Verdict{Action: nft.Goto, Chain: nft.UnservedChain}},
		}},
		{Name: "unserved-output", Hook: nft.Output, Priority: nft.PriorityUnserved, Rules: []nft.Rule{
			// ct direction reply accept
			{nft.IsAnswer{}, nft.Verdict{Action: nft.Accept}},
			{nft.Verdict{Action: nft.Goto, Chain: nft.UnservedChain}},
		}},
	}
}

// firewall drops clients that may not use a frontend (4.30).
//
//	ip daddr . meta l4proto . th dport @firewalled ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
func firewall() nft.Rule {
	return nft.Rule{
		nft.InSet{Key: dialled, Set: nft.FirewalledSet},
		nft.InSet{Key: append(dialled[:3:3], nft.SourceAddress), Set: nft.SourceRangesSet, Not: true},
		nft.Verdict{Action: nft.Drop},
	}
}

// prerouting asks for clients outside of the cluster first: they are all that
// do not come from a pod, because what the node sends itself does not pass
// here.
func prerouting(f model.Family, r *model.Routing) *nft.Chain {
	c := &nft.Chain{Name: "prerouting", Hook: nft.Prerouting, Priority: nft.PriorityDNAT, Rules: []nft.Rule{firewall()}}
	// ip saddr != 10.128.0.0/9 ip daddr . meta l4proto . th dport vmap @local-services
	local, _ := notFromPod(f, r)
	local = append(local, nft.VerdictMap{Key: dialled, Map: nft.LocalServicesMap})
	c.Rules = append(c.Rules, local)
	c.Rules = append(c.Rules, toDispatch(r, nodePreroutingChain)...)
	return c
}

// maxInterfaceName is the longest name that an interface can have (the kernel's
// IFNAMSIZ less the final NUL).
const maxInterfaceName = 15

// notFromPod matches packets that the detector does not recognise, and tells
// whether there is a detector. Without one, and with one for interfaces that
// cannot exist (7.6), nothing is recognised.
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
	// A beginning that is as long as a name can only be the name.
	return nft.Rule{nft.NotFrom{Name: d.Interface, ByPrefix: d.ByPrefix && len(d.Interface) < maxInterfaceName}}, true
}

func output(r *model.Routing) *nft.Chain {
	return &nft.Chain{Name: "output", Hook: nft.Output, Priority: nft.PriorityDNAT, Rules: append([]nft.Rule{
		// A reset that refuses a connection of the node itself passes here too.
		// Its port can be that of a frontend, which would refuse the reset.
		// ct direction reply accept
		{nft.IsAnswer{}, nft.Verdict{Action: nft.Accept}},
		firewall(),
	}, toDispatch(r, nodeDispatchChain)...)}
}

// postrouting decides from the connection tracking entry what is masqueraded,
// so that no packet mark is needed (8.6).
func postrouting(f model.Family, r *model.Routing) *nft.Chain {
	rules := []nft.Rule{
		// ct status ! dnat accept
		{nft.NotTranslated{}, nft.Verdict{Action: nft.Accept}},
		// ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
		{nft.InSet{Key: nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort}, Set: nft.HairpinSet}, nft.Masquerade{}},
	}
	rules = append(rules, masqueradeClusterIPs(f, r)...)
	rules = append(rules, masqueradeExternal(original)...)
	if r.Wildcards {
		rules = append(rules, toNode(nft.OriginalDestination, nodePostroutingChain))
	}
	return &nft.Chain{Name: "postrouting", Hook: nft.Postrouting, Priority: nft.PrioritySNAT, Rules: rules}
}

// masqueradeExternal masquerades traffic to external addresses and NodePorts: all
// of it, or where they have policy Local that of the node itself.
func masqueradeExternal(frontend nft.Concat) []nft.Rule {
	var rules []nft.Rule
	for _, p := range model.Protocols {
		rules = append(rules,
			// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @masq-frontends masquerade fully-random
			nft.Rule{nft.ProtocolIs{Protocol: p}, nft.InSet{Key: frontend, Set: nft.MasqFrontendsSet}, nft.Masquerade{}},
			// meta l4proto tcp ct original ... @local-frontends fib saddr type local masquerade fully-random
			nft.Rule{nft.ProtocolIs{Protocol: p}, nft.InSet{Key: frontend, Set: nft.LocalFrontendsSet}, nft.SourceIsLocal{}, nft.Masquerade{}})
	}
	return rules
}

// masqueradeClusterIPs masquerades traffic to ClusterIPs that does not come
// from pods, or all of it (4.26). Without a detector there is none (4.27).
func masqueradeClusterIPs(f model.Family, r *model.Routing) []nft.Rule {
	match, detects := notFromPod(f, r)
	if !detects && !r.MasqueradeAll {
		return nil
	}
	// ct original ip daddr @cluster-ips masquerade fully-random
	masquerade := nft.Rule{nft.InSet{Key: nft.Concat{nft.OriginalDestination}, Set: nft.ClusterIPsSet}, nft.Masquerade{}}
	if r.MasqueradeAll || len(match) == 0 {
		return []nft.Rule{masquerade}
	}
	from, byInterface := match[0].(nft.NotFrom)
	if !byInterface {
		// ip saddr != 10.128.0.0/9 ct original ...
		return []nft.Rule{append(match, masquerade...)}
	}
	// A packet that a bridge forwards has no input interface here where the
	// bridge calls iptables. It comes from a pod if the bridge, which is the
	// output interface then, is that of the pods.
	rule := func(s nft.Statement) nft.Rule { return append(nft.Rule{from, s}, masquerade...) }
	return []nft.Rule{
		// iifname != "cni0" iif != 0 ct original ...
		rule(nft.CameIn{}),
		// iifname != "cni0" oifname != "cni0" ct original ...
		rule(nft.NotTo(from)),
		// iifname != "cni0" fib saddr type local ct original ...
		rule(nft.SourceIsLocal{}),
	}
}
