package test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
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

// 5.4, 5.5, 5.7: with policy Local pods and the node follow the set of the cluster, also
// if they are bound to a local endpoint that stays in the local set. Clients outside
// follow the local set.
func TestAffinityFollowsTheSetOfTheClient(t *testing.T) {
	for name, flags := range map[string][]string{
		"NodePorts on one address": nil,
		"NodePorts on all":         {"--nodeport-addresses", "0.0.0.0/0,::/0"},
	} {
		t.Run(name, func(t *testing.T) { affinityFollowsTheSetOfTheClient(t, flags) })
	}
}

func affinityFollowsTheSetOfTheClient(t *testing.T, flags []string) {
	c := newWideCluster(t, 2, 1)
	c.flags = slices.Concat(clusterCIDR, flags)
	local, remote, pod := c.Pods[0], c.Remote[0], c.Pods[1]
	outside := c.crowd(1)
	before := service{Name: "web", N: 1, Pods: []*netlab.Host{local}, External: "Local", Affinity: long}
	terminating := before
	terminating.Pods, terminating.Terminating = []*netlab.Host{remote}, []*netlab.Host{local}
	// Every ready endpoint has a hint, and that of the remote one names this zone.
	excluded := before
	excluded.Pods = []*netlab.Host{local, remote}
	excluded.Zones = map[*netlab.Host]string{local: "zone-b", remote: nodeZone}
	for when, after := range map[string]service{"it terminates": terminating, "hints exclude it": excluded} {
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			c := c.in(t)
			c.apply(before)
			for kind, to := range before.frontends(c.Node, family) {
				for _, client := range append(outside, pod, c.Node) {
					if got := ask(t, client, network, to).Name; got != local.Name {
						t.Errorf("%s: %s is on %s by the %s at first", when, client.Name, got, kind)
					}
				}
			}
			c.apply(after)
			for kind, to := range before.frontends(c.Node, family) {
				stays := remote // the ClusterIP has the set of the cluster for all
				if to.Addr() != before.clusterIP(family).Addr() {
					stays = local
				}
				for client, want := range map[*netlab.Host]*netlab.Host{outside[0]: stays, pod: remote, c.Node: remote} {
					for range 2 { // the binding of the second one is that of the first one
						if got := ask(t, client, network, to).Name; got != want.Name {
							t.Errorf("%s: %s is on %s by the %s, want %s", when, client.Name, got, kind, want.Name)
						}
					}
				}
			}
			c.apply()
		})
	}
}
