package test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Source ports of the datagrams in TestNodePortOfNoAddress.
const (
	fromUnspecified = 40001 // to the unspecified address
	fromServed      = 40002 // to an address that serves NodePorts
)

// watchArrivals counts datagrams by their source port: when they arrive, and behind DNAT.
var watchArrivals = fmt.Sprintf(`table inet watch {
	counter arrived {}
	counter unspecified {}
	counter served {}
	chain early { type filter hook prerouting priority -350; udp sport %[1]d counter name arrived; }
	chain late {
		type filter hook prerouting priority 0
		udp sport %[1]d ct status dnat counter name unspecified
		udp sport %[2]d ct status dnat counter name served
	}
}
`, fromUnspecified, fromServed)

// 6.6: NodePorts are served on the addresses in the set only. A machine in a network of the
// node can send a packet to 0.0.0.0 or :: in a frame to the node.
func TestNodePortOfNoAddress(t *testing.T) {
	for _, affinity := range []int{0, long} {
		for _, family := range model.Families {
			t.Run(fmt.Sprintf("%s, affinity %d s", family, affinity), func(t *testing.T) {
				c := newCluster(t, 1)
				c.addSecondAddress()
				served := secondAddress[family]
				c.flags = slices.Concat(clusterCIDR, []string{"--nodeport-addresses", secondAddress[model.IPv4].String() + "/32," + secondAddress[model.IPv6].String() + "/128"})
				web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: affinity}
				c.apply(web)
				c.nftLoad(watchArrivals)
				from := c.Client.Address(family)
				c.sendFrame(firstPacket(model.UDP, netip.AddrPortFrom(from, fromUnspecified), netip.AddrPortFrom(model.Wildcard(family), web.NodePort())))
				c.sendFrame(firstPacket(model.UDP, netip.AddrPortFrom(from, fromServed), netip.AddrPortFrom(served, web.NodePort())))
				eventually(t, func() error {
					if arrived, served := c.counter("arrived"), c.counter("served"); arrived != 1 || served != 1 {
						return fmt.Errorf("%d datagrams to no address arrived, and %d are served, want one of each", arrived, served)
					}
					return nil
				})
				if n := c.counter("unspecified"); n != 0 {
					t.Errorf("a packet to %s reaches the NodePort, which only %s serves", model.Wildcard(family), served)
				}
			})
		}
	}
}
