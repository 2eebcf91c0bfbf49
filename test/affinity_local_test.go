package test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// 5.5: a client is bound only to endpoints that its frontend may reach.
func TestAffinityAndLocalPolicy(t *testing.T) {
	c := newWideCluster(t, 3, 1)
	clients := c.crowd(12)
	local := c.Pods[:2]
	web := service{Name: "web", N: 1, Pods: slices.Concat(local, c.Remote), External: "Local", Affinity: long}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		c.apply(web)
		anywhere := bind(t, clients, network, web.clusterIP(family))
		anywhere.spread(t, web.Pods...)
		anywhere.hold(t, "nothing happened", network, web.clusterIP(family))
		remote := anywhere.of(c.Remote[0].Name)
		for _, to := range []netip.AddrPort{web.nodePort(c.Node, family), web.externalIP(family), web.loadBalancerIP(family)} {
			here := bind(t, remote, network, to)
			if len(here.of(c.Remote[0].Name)) > 0 {
				t.Errorf("a client from outside is on %s by %s", c.Remote[0].Name, to)
			}
			here.hold(t, "nothing happened", network, to, to)
		}
		c.apply()
	})
}

// 5.5, 5.6: with policy Local the loss of a local endpoint moves its clients to
// another local one.
func TestAffinityMovesAmongLocalEndpoints(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	clients := c.crowd(8)
	near := func(pods ...*netlab.Host) service {
		return service{Name: "web", N: 1, Pods: append(pods, c.Remote...), External: "Local", Affinity: long}
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		c.apply(near(c.Pods[0], c.Pods[1]))
		bind(t, clients, network, near().nodePort(c.Node, family)).spread(t, c.Pods...)
		c.apply(near(c.Pods[1]))
		for client, name := range bind(t, clients, network, near().nodePort(c.Node, family)) {
			if name != c.Pods[1].Name {
				t.Errorf("client %s is on %s", client.IPv4, name)
			}
		}
		c.apply()
	})
}
