package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

var (
	// dialled is the key of a frontend where packets come in: what a client
	// dials.
	dialled = Concat{DestinationAddress, TransportProtocol, DestinationPort}
	// original is the same behind DNAT, as connection tracking knows it.
	original = Concat{OriginalDestination, TransportProtocol, OriginalPort}
	// frontend is the type of both.
	frontend = []Datatype{Address, InetProto, Port}
)

// skeleton returns the part of a table that is the same for every set of
// services. What session affinity needs is there only if services have it, of the
// kinds given: it costs memory, and time for every new connection.
func skeleton(f model.Family, r *model.Routing, kinds []affinity) *Table {
	return &Table{
		Family: f,
		Sets:   sets(r, kinds),
		Chains: slices.Concat(
			[]*Chain{refuse(), dispatch()},
			nodeChains(f, r),
			[]*Chain{prerouting(f, r), output(r)},
			unserved(),
			affinityChains(r, kinds),
			[]*Chain{postrouting(f, r)}),
	}
}

// sets returns the sets and maps of a table, empty.
func sets(r *model.Routing, kinds []affinity) []*Set {
	out := []*Set{
		// What a frontend does: goto a lane, goto refuse, or drop.
		{Name: ServicesMap, Key: frontend, Data: []Datatype{Verdicts}, Counters: r.Counters},
		// The same for clients outside of the cluster, where it differs.
		{Name: LocalServicesMap, Key: frontend, Data: []Datatype{Verdicts}, Counters: r.Counters},
		// The endpoints of a frontend, numbered.
		{Name: EndpointsMap, Key: append(frontend[:3:3], Slot), Data: []Datatype{Address, Port}},
		// Frontends that not everybody may use, and who may.
		{Name: FirewalledSet, Key: frontend},
		{Name: SourceRangesSet, Key: append(frontend[:3:3], Source), Interval: true},
		// Frontends behind which every source is masqueraded, and those
		// behind which the node itself is.
		{Name: MasqFrontendsSet, Key: frontend},
		{Name: LocalFrontendsSet, Key: frontend},
		{Name: ClusterIPsSet, Key: []Datatype{Address}},
		{Name: ServiceCIDRsSet, Key: []Datatype{Address}, Interval: true},
		// Endpoints that may dial themselves: source and destination alike.
		{Name: HairpinSet, Key: []Datatype{Source, Address, InetProto, Port}},
	}
	if r.Wildcards {
		// Where NodePorts with the unspecified address are served.
		out = append(out, &Set{Name: NodeAddressesSet, Key: []Datatype{Address}})
	}
	return append(out, affinitySets(kinds, r.AffinityCapacity)...)
}

func refuse() *Chain {
	return &Chain{Name: refuseChain, Rules: []Rule{
		// Both mean "connection refused" to a TCP client, but the kernel
		// limits the rate of ICMP errors, and a client on this node loses an
		// ICMPv6 error that arrives while connect still holds the socket: it
		// would wait a second for its next attempt.
		// meta l4proto tcp reject with tcp reset
		{ProtocolIs{model.TCP}, Reset{}},
		// reject
		{Refuse{}},
	}}
}

func dispatch() *Chain {
	return &Chain{Name: dispatchChain, Rules: []Rule{
		// ip daddr . meta l4proto . th dport vmap @services
		{VerdictMap{dialled, ServicesMap}},
	}}
}

// unserved returns the chains for addresses that are ours where no frontend is.
// They come behind the nat chains of all others, so that another program can
// serve such an address: what it has translated does not get here, whether it
// started before nftproxy or after it.
func unserved() []*Chain {
	return []*Chain{
		{Name: unservedChain, Rules: []Rule{
			// An undefined port of a ClusterIP, or another protocol (4.23).
			// ip daddr @cluster-ips goto refuse
			{InSet{Key: Concat{DestinationAddress}, Set: ClusterIPsSet}, Verdict{Goto, refuseChain}},
			// An address of a service CIDR that no Service has (4.24).
			// ip daddr @service-cidrs drop
			{InSet{Key: Concat{DestinationAddress}, Set: ServiceCIDRsSet}, Verdict{Action: Drop}},
		}},
		{Name: "unserved-prerouting", Hook: Prerouting, Priority: PriorityUnserved, Rules: []Rule{
			{Verdict{Goto, unservedChain}},
		}},
		{Name: "unserved-output", Hook: Output, Priority: PriorityUnserved, Rules: []Rule{
			// ct direction reply accept
			{IsAnswer{}, Verdict{Action: Accept}},
			{Verdict{Goto, unservedChain}},
		}},
	}
}

// firewall drops clients that may not use a frontend (4.30).
//
//	ip daddr . meta l4proto . th dport @firewalled ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
func firewall() Rule {
	return Rule{
		InSet{Key: dialled, Set: FirewalledSet},
		InSet{Key: append(dialled[:3:3], SourceAddress), Set: SourceRangesSet, Not: true},
		Verdict{Action: Drop},
	}
}

// prerouting asks for clients outside of the cluster first: they are all that
// do not come from a pod, because what the node sends itself does not pass
// here.
func prerouting(f model.Family, r *model.Routing) *Chain {
	c := &Chain{Name: "prerouting", Hook: Prerouting, Priority: PriorityDNAT, Rules: []Rule{firewall()}}
	// ip saddr != 10.128.0.0/9 ip daddr . meta l4proto . th dport vmap @local-services
	local, _ := notFromPod(f, r)
	local = append(local, VerdictMap{dialled, LocalServicesMap})
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
func notFromPod(f model.Family, r *model.Routing) (match Rule, detects bool) {
	d, ok := r.Detectors[f]
	switch {
	case !ok:
		return nil, false
	case d.Prefix.IsValid():
		return Rule{SourceNotIn{d.Prefix}}, true
	case len(d.Interface) > maxInterfaceName:
		return nil, true
	}
	// A beginning that is as long as a name can only be the name.
	return Rule{NotFrom{d.Interface, d.ByPrefix && len(d.Interface) < maxInterfaceName}}, true
}

func output(r *model.Routing) *Chain {
	return &Chain{Name: "output", Hook: Output, Priority: PriorityDNAT, Rules: append([]Rule{
		// A reset that refuses a connection of the node itself passes here too.
		// Its port can be that of a frontend, which would refuse the reset.
		// ct direction reply accept
		{IsAnswer{}, Verdict{Action: Accept}},
		firewall(),
	}, toDispatch(r, nodeDispatchChain)...)}
}

// postrouting decides from the connection tracking entry what is masqueraded,
// so that no packet mark is needed (8.6).
func postrouting(f model.Family, r *model.Routing) *Chain {
	rules := []Rule{
		// ct status ! dnat accept
		{NotTranslated{}, Verdict{Action: Accept}},
		// ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
		{InSet{Key: Concat{SourceAddress, DestinationAddress, TransportProtocol, DestinationPort}, Set: HairpinSet}, Masquerade{}},
	}
	rules = append(rules, masqueradeClusterIPs(f, r)...)
	rules = append(rules, masqueradeExternal(original)...)
	if r.Wildcards {
		rules = append(rules, toNode(OriginalDestination, nodePostroutingChain))
	}
	return &Chain{Name: "postrouting", Hook: Postrouting, Priority: PrioritySNAT, Rules: rules}
}

// masqueradeExternal masquerades traffic to external addresses and NodePorts: all
// of it, or where they have policy Local that of the node itself.
func masqueradeExternal(frontend Concat) []Rule {
	var rules []Rule
	for _, p := range model.Protocols {
		rules = append(rules,
			// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @masq-frontends masquerade fully-random
			Rule{ProtocolIs{p}, InSet{Key: frontend, Set: MasqFrontendsSet}, Masquerade{}},
			// meta l4proto tcp ct original ... @local-frontends fib saddr type local masquerade fully-random
			Rule{ProtocolIs{p}, InSet{Key: frontend, Set: LocalFrontendsSet}, SourceIsLocal{}, Masquerade{}})
	}
	return rules
}

// masqueradeClusterIPs masquerades traffic to ClusterIPs that does not come
// from pods, or all of it (4.26). Without a detector there is none (4.27).
func masqueradeClusterIPs(f model.Family, r *model.Routing) []Rule {
	match, detects := notFromPod(f, r)
	if !detects && !r.MasqueradeAll {
		return nil
	}
	// ct original ip daddr @cluster-ips masquerade fully-random
	masquerade := Rule{InSet{Key: Concat{OriginalDestination}, Set: ClusterIPsSet}, Masquerade{}}
	if r.MasqueradeAll || len(match) == 0 {
		return []Rule{masquerade}
	}
	from, byInterface := match[0].(NotFrom)
	if !byInterface {
		// ip saddr != 10.128.0.0/9 ct original ...
		return []Rule{append(match, masquerade...)}
	}
	// A packet that a bridge forwards has no input interface here where the
	// bridge calls iptables. It comes from a pod if the bridge, which is the
	// output interface then, is that of the pods.
	rule := func(s Statement) Rule { return append(Rule{from, s}, masquerade...) }
	return []Rule{
		// iifname != "cni0" iif != 0 ct original ...
		rule(CameIn{}),
		// iifname != "cni0" oifname != "cni0" ct original ...
		rule(NotTo(from)),
		// iifname != "cni0" fib saddr type local ct original ...
		rule(SourceIsLocal{}),
	}
}
