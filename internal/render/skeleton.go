package render

import (
	"cmp"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// dialled is the key of a frontend: what a client dials.
var dialled = Concat{DestinationAddress, TransportProtocol, DestinationPort}

// skeleton returns the part of a table that is the same for every set of
// services.
func skeleton(f model.Family, clusterCIDRs []netip.Prefix) *Table {
	frontend := []Datatype{Address, InetProto, Port}
	return &Table{
		Family: f,
		Sets: []*Set{
			// What a frontend does: goto a lane, goto refuse, or drop.
			{Name: "services", Key: frontend, Data: []Datatype{Verdicts}},
			// The endpoints of a frontend, numbered.
			{Name: "endpoints", Key: append(frontend[:3:3], Slot), Data: []Datatype{Address, Port}},
			// Frontends behind which every source is masqueraded.
			{Name: "masq-frontends", Key: frontend},
			{Name: "cluster-ips", Key: []Datatype{Address}},
			{Name: "service-cidrs", Key: []Datatype{Address}, Interval: true},
			// Endpoints that may dial themselves: source and destination alike.
			{Name: "hairpin", Key: []Datatype{Address, Address, InetProto, Port}},
		},
		Chains: []*Chain{
			{Name: "refuse", Rules: []Rule{
				// Both mean "connection refused" to a TCP client, but the kernel
				// limits the rate of ICMP errors, and a client on this node loses
				// an ICMPv6 error that arrives while connect still holds the
				// socket: it would wait a second for its next attempt.
				// meta l4proto tcp reject with tcp reset
				{ProtocolIs{model.TCP}, Reset{}},
				// reject
				{Refuse{}},
			}},
			{Name: "dispatch", Rules: []Rule{
				// ip daddr . meta l4proto . th dport vmap @services
				{VerdictMap{dialled, "services"}},
				// An undefined port of a ClusterIP, or another protocol (4.23).
				// ip daddr @cluster-ips goto refuse
				{InSet{Concat{DestinationAddress}, "cluster-ips"}, Verdict{Goto, "refuse"}},
				// An address of a service CIDR that nobody has (4.24).
				// ip daddr @service-cidrs drop
				{InSet{Concat{DestinationAddress}, "service-cidrs"}, Verdict{Action: Drop}},
			}},
			{Name: "prerouting", Hook: Prerouting, Priority: PriorityDNAT, Rules: []Rule{{Verdict{Goto, "dispatch"}}}},
			{Name: "output", Hook: Output, Priority: PriorityDNAT, Rules: []Rule{{Verdict{Goto, "dispatch"}}}},
			{Name: "postrouting", Hook: Postrouting, Priority: PrioritySNAT, Rules: postrouting(f, clusterCIDRs)},
		},
	}
}

// postrouting decides from the connection tracking entry what is masqueraded,
// so that no packet mark is needed (8.6). A source of another family cannot
// occur, so a family without a cluster CIDR has no detector (4.27).
func postrouting(f model.Family, clusterCIDRs []netip.Prefix) []Rule {
	rules := []Rule{
		// ct status ! dnat accept
		{NotTranslated{}, Verdict{Action: Accept}},
		// ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
		{InSet{Concat{SourceAddress, DestinationAddress, TransportProtocol, DestinationPort}, "hairpin"}, Masquerade{}},
	}
	for _, p := range clusterCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			// ip saddr != 10.128.0.0/9 ct original ip daddr @cluster-ips masquerade fully-random
			rules = append(rules, Rule{SourceNotIn{p}, InSet{Concat{OriginalDestination}, "cluster-ips"}, Masquerade{}})
		}
	}
	for _, p := range model.Protocols {
		// nft wants to know the protocol before it takes "proto-dst".
		// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @masq-frontends masquerade fully-random
		rules = append(rules, Rule{
			ProtocolIs{p},
			InSet{Concat{OriginalDestination, TransportProtocol, OriginalPort}, "masq-frontends"},
			Masquerade{},
		})
	}
	return rules
}

// compareLanes orders lanes by their number of slots, then by name.
func compareLanes(a, b *Chain) int {
	modulus := func(c *Chain) uint32 {
		key := c.Rules[0][0].(DNAT).Key
		return key[len(key)-1].(Numgen).Modulus
	}
	return cmp.Or(cmp.Compare(modulus(a), modulus(b)), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
}
