package neighbours

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

// kindnet's masquerade agent, written from the rules that its daemon adds: its module
// cannot be required, because it has no version. It comes before nftproxy (priority
// srcnat - 10), skips local addresses and pods, and masquerades the rest.
const kindnetMasquerade = `
table inet kindnet-ipmasq
delete table inet kindnet-ipmasq
table inet kindnet-ipmasq {
	set noMasqV4 { type ipv4_addr; flags interval; auto-merge; elements = { %s } }
	set noMasqV6 { type ipv6_addr; flags interval; auto-merge; elements = { %s } }
	chain postrouting {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ct state established,related accept
		fib daddr type local accept
		ip daddr @noMasqV4 accept
		ip6 daddr @noMasqV6 accept
		masquerade
	}
}
`

// kindnet's host ports: two maps from the node's port to that of the pod.
const kindnetHostPorts = `
table inet cni-kindnet
delete table inet cni-kindnet
table inet cni-kindnet {
	map hostport-map-v4 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; flags interval
		elements = { 0.0.0.0-255.255.255.255 . tcp . 8081 : %[1]s . 8080, 0.0.0.0-255.255.255.255 . udp . 8081 : %[1]s . 8080 } }
	map hostport-map-v6 { type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service; flags interval
		elements = { ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff . tcp . 8081 : %[2]s . 8080, ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff . udp . 8081 : %[2]s . 8080 } }
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		meta l4proto { tcp, udp } fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @hostport-map-v4
		meta l4proto { tcp, udp } fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @hostport-map-v6
	}
	chain output {
		type nat hook output priority -100; policy accept;
		meta l4proto { tcp, udp } fib daddr type local dnat ip to ip daddr . meta l4proto . th dport map @hostport-map-v4
		meta l4proto { tcp, udp } fib daddr type local dnat ip6 to ip6 daddr . meta l4proto . th dport map @hostport-map-v6
	}
}
`

func (n *nodes) loadKindnet() {
	n.t.Helper()
	elements := map[model.Family]string{}
	for _, on := range n.all {
		for f, cidr := range on.cidrs {
			elements[f] += cidr.String() + ", "
		}
	}
	for _, on := range n.all {
		on.load(fmt.Sprintf(kindnetMasquerade, elements[model.IPv4], elements[model.IPv6]))
	}
}

// kindnet gives pods links of their own to the node, as ptp does, and writes its rules
// again whenever a node comes or goes.
func TestKindnet(t *testing.T) {
	all, err := pluginsOf()
	if err != nil {
		t.Fatal(err)
	}
	for order, proxyFirst := range map[string]bool{"kindnet first": false, "nftproxy first": true} {
		t.Run(order, func(t *testing.T) {
			n := newNodes(t, 2)
			first := n.all[0]
			n.addPods(all[1], func(on *node) []plugin { return []plugin{on.with("ptp", plugin{})} })
			m := n.addMix()
			if proxyFirst {
				n.startProxies()
			}
			n.loadKindnet()
			first.load(fmt.Sprintf(kindnetHostPorts, first.pods[0].IPv4, first.pods[0].IPv6))
			if !proxyFirst {
				n.startProxies()
			}
			m.works(n)
			n.masqueraded()
			eventually(t, func() error {
				return n.reached(hostPort, first.pods[0], n.client, n.all[1].Host, n.all[1].pods[0], first.pods[1])
			})
			// Its rules again, as after a node was added.
			n.loadKindnet()
			m.works(n)
			n.masqueraded()
			finds(t, finding{Group: cniGroup, Neighbour: "kindnet's rules", Case: "masquerade agent and host ports, " + order, Verdict: works})
		})
	}
}

// kindnet masquerades what pods send to the network of the nodes, a Service or not.
func TestKindnetToNodes(t *testing.T) {
	all, err := pluginsOf()
	if err != nil {
		t.Fatal(err)
	}
	n := newNodes(t, 2)
	n.addPods(all[1], func(on *node) []plugin { return []plugin{on.with("ptp", plugin{})} })
	first, second := n.all[0], n.all[1]
	n.echo(second.Host)
	onNode := n.addService("on-node", nil, second.Host)
	n.startProxies()
	eventually(t, func() error {
		return asks("without kindnet", first.pods[0], onNode.target("tcp", model.IPv4), second.Name, addrs(first.pods[0].IPv4))
	})
	n.loadKindnet()
	forEachFlow(func(network string, f model.Family) {
		eventually(t, func() error {
			return asks("with kindnet", first.pods[0], onNode.target(network, f), second.Name, addrs(first.Address(f)))
		})
		direct := testbed.Target{Network: network, Family: f, To: addrPort(second.Address(f), testbed.EchoPort)}
		eventually(t, func() error {
			return asks("with kindnet, directly", first.pods[0], direct, second.Name, addrs(first.Address(f)))
		})
	})
	finds(t, finding{Group: cniGroup, Neighbour: "kindnet's rules", Case: "endpoints in the host network of another node", Verdict: works,
		Note: "(they see the address of the client's node, as without a Service)"})
}
