package neighbours

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

// felixRules is the frame of what Felix programs in its nftables mode, written from
// its rules: marks of its own (0x000f0000), a check of the pods' source addresses, a
// policy for what is forwarded to a pod, and masquerading of what leaves the pools
// after nftproxy's chains (srcnat + 10). Felix itself cannot be required: its module
// has no version.
const felixRules = `
table %[1]s calico
delete table %[1]s calico
table %[1]s calico {
	chain raw-PREROUTING {
		type filter hook prerouting priority raw; policy accept;
		meta mark set meta mark & 0xffe4ffff
		iifname "veth*" meta mark set meta mark | 0x00080000
		meta mark & 0x00080000 == 0x00080000 fib saddr . mark . iif oif 0 drop
	}
	chain filter-FORWARD {
		type filter hook forward priority filter; policy accept;
		meta mark set meta mark & 0xffe5ffff
		iifname "veth*" jump from-workload
		oifname "veth*" jump to-workload
		meta mark & 0x00010000 == 0x00010000 accept
		meta mark set meta mark | 0x00010000
	}
	chain from-workload {
		ct state established,related accept
		ct state invalid drop
		meta mark set meta mark | 0x00010000
	}
	chain to-workload {
		ct state established,related accept
		ct state invalid drop
		meta mark set meta mark & 0xfffcffff
		%[1]s daddr != %[2]s return
		%[1]s saddr %[3]s meta mark set meta mark | 0x00010000
		meta mark & 0x00010000 == 0x00010000 return
		drop
	}
	chain nat-POSTROUTING {
		type nat hook postrouting priority srcnat + 10; policy accept;
		%[1]s saddr %[4]s %[1]s daddr != %[4]s masquerade fully-random
	}
}
`

// loadFelix lets only a source reach the second pod of the first node; an unspecified
// one stands for everything.
func (n *nodes) loadFelix(source func(model.Family) netip.Prefix) {
	n.t.Helper()
	cidr4, cidr6, _ := strings.Cut(testbed.ClusterCIDRs, ",")
	for _, on := range n.all {
		for i, f := range model.Families {
			on.load(fmt.Sprintf(felixRules, []string{"ip", "ip6"}[i], n.all[0].pods[1].Address(f), source(f), []string{cidr4, cidr6}[i]))
		}
	}
}

func TestCalicoRules(t *testing.T) {
	all, err := pluginsOf()
	if err != nil {
		t.Fatal(err)
	}
	for order, proxyFirst := range map[string]bool{"Calico first": false, "nftproxy first": true} {
		t.Run(order, func(t *testing.T) {
			n := newNodes(t, 2)
			n.addPods(all[1], func(on *node) []plugin { return []plugin{on.with("ptp", plugin{})} })
			m := n.addMix()
			if proxyFirst {
				n.startProxies()
			}
			n.loadFelix(func(f model.Family) netip.Prefix { return everything[f] })
			if !proxyFirst {
				n.startProxies()
			}
			m.works(n)
			n.masqueraded()
			n.policies(m)
			finds(t, finding{Group: calicoGroup, Neighbour: "Calico's rules", Case: "nftables mode with policies and `natOutgoing`, " + order, Verdict: works,
				Note: "(policies see the address of the client, at NodePorts as well)"})
		})
	}
}

// policies checks that a policy applies to connections through Services, and that it
// sees who opened them.
func (n *nodes) policies(m serviceMix) {
	n.t.Helper()
	first, second := n.all[0], n.all[1]
	pod, endpoint := first.pods[0], first.pods[1]
	n.loadFelix(func(f model.Family) netip.Prefix { return netip.PrefixFrom(pod.Address(f), pod.Address(f).BitLen()) })
	forEachFlow(func(network string, f model.Family) {
		inside, outside := m.same.target(network, f), m.same.nodePort(first, network, f)
		eventually(n.t, func() error { return asks("an allowed pod", pod, inside, endpoint.Name, addrs(pod.Address(f))) })
		eventually(n.t, func() error { return testbed.WantSilence(second.pods[0], network, inside.To) })
		eventually(n.t, func() error { return testbed.WantSilence(n.client, network, outside.To) })
	})
	n.loadFelix(func(f model.Family) netip.Prefix {
		return netip.PrefixFrom(n.client.Address(f), n.client.Address(f).BitLen())
	})
	forEachFlow(func(network string, f model.Family) {
		inside, outside := m.same.target(network, f), m.same.nodePort(first, network, f)
		eventually(n.t, func() error { return asks("an allowed client", n.client, outside, endpoint.Name, nil) })
		eventually(n.t, func() error { return testbed.WantSilence(pod, network, inside.To) })
	})
}
