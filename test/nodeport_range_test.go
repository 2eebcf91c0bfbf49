package test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// allAddresses serves NodePorts on every address of the node.
var allAddresses = append([]string{"--nodeport-addresses", "0.0.0.0/0,::/0"}, clusterCIDR...)

// Tables 4-A and 4-B where a NodePort is one frontend for many addresses, with
// affinity (5.13) and without.
func TestPoliciesOnAllAddresses(t *testing.T) {
	t.Parallel()
	for name, affinity := range map[string]int{"without affinity": 0, "with affinity": long} {
		t.Run(name, func(t *testing.T) {
			c := newWideCluster(t, 3, 2)
			c.flags = allAddresses
			situations := c.situations()
			for i := range situations {
				situations[i].service.Affinity = affinity
			}
			c.verify(t, tableA, situations, model.Families[:]...)
		})
	}
}

// 5.1, 5.2, 5.6: a client of a NodePort stays on its endpoint whatever address of
// the node it dials, until the endpoint is gone.
func TestAffinityOnAllAddresses(t *testing.T) {
	c := newCluster(t, 3)
	c.flags = allAddresses
	c.addSecondAddress()
	clients := c.crowd(12)
	sticky := func(pods ...*netlab.Host) service { return service{Name: "web", N: 1, Pods: pods, Affinity: long} }
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		c := c.in(t)
		c.apply(sticky(c.Pods...))
		first := sticky().nodePort(c.Node, family)
		second := netip.AddrPortFrom(secondAddress[family], first.Port())
		b := bind(t, clients, network, first)
		b.spread(t, c.Pods...)
		b.hold(t, "all addresses", network, first, second)

		left := b.of(c.Pods[0].Name)
		c.apply(sticky(c.Pods[1:]...))
		moved := bind(t, left, network, second)
		moved.spread(t, c.Pods[1:]...)
		moved.hold(t, "after the endpoint is gone", network, first, second)
		c.apply() // leaves no binding to the next round
	})
}

// 4.37: a load balancer IP that is also an address of the node wins its port over
// a NodePort. Its connections have nothing of the NodePort: neither the endpoints,
// nor the masquerade, nor the affinity. The NodePort is served on the other
// addresses.
func TestLoadBalancerIPOnNode(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Cluster", "Local"} {
		t.Run(policy, func(t *testing.T) {
			c := newCluster(t, 2)
			c.flags = allAddresses
			c.addSecondAddress()
			web := service{Name: "web", N: 1, Pods: c.Pods[:1], Affinity: long}
			balanced := service{Name: "balanced", N: 2, Pods: c.Pods[1:], External: policy, Port: int(web.NodePort()),
				LoadBalancerIPs: []string{secondAddress[model.IPv4].String(), secondAddress[model.IPv6].String()}}
			c.apply(web, balanced)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				first := web.nodePort(c.Node, family)
				second := netip.AddrPortFrom(secondAddress[family], first.Port())
				want := c.Client.Address(family)
				if policy == "Cluster" {
					want = c.Gateway(c.Pods[1], family)
				}
				for range 3 {
					if got := ask(t, c.Client, network, first).Name; got != c.Pods[0].Name {
						t.Errorf("%s: %s answers, want %s", first, got, c.Pods[0].Name)
					}
					if got := ask(t, c.Client, network, second); got.Name != c.Pods[1].Name || got.Client != want {
						t.Errorf("%s: %s answers %s, want %s to %s", second, got.Name, got.Client, c.Pods[1].Name, want)
					}
				}
			})
		})
	}
}

// 4.37: a load balancer IP without endpoints that is also an address of the node leaves its port to
// the NodePort of another Service, and takes it when it gets an endpoint.
func TestLoadBalancerIPYields(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = allAddresses
	c.addSecondAddress()
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	balanced := service{Name: "balanced", N: 2, Port: int(web.NodePort()), Dead: c.Pods[1:],
		LoadBalancerIPs: []string{secondAddress[model.IPv4].String(), secondAddress[model.IPv6].String()}}
	answers := func(want string) {
		forEachFlow(t, func(t *testing.T, network string, family model.Family) {
			at := netip.AddrPortFrom(secondAddress[family], web.NodePort())
			if got := ask(t, c.Client, network, at).Name; got != want {
				t.Errorf("%s: %s answers, want %s", at, got, want)
			}
		})
	}
	c.apply(web, balanced)
	answers(c.Pods[0].Name)
	balanced.Dead, balanced.Pods = nil, c.Pods[1:]
	c.apply(web, balanced)
	answers(c.Pods[1].Name)
	web.Pods, balanced.Pods = web.Pods[:0], balanced.Pods[:0]
	web.Dead, balanced.Dead = c.Pods[:1], c.Pods[1:]
	c.apply(web, balanced)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		refused(t, []*netlab.Host{c.Client}, network, netip.AddrPortFrom(secondAddress[family], web.NodePort()))
	})
}

// 4.23: an address of the node that is also a ClusterIP has no NodePorts.
// Packets to the port of a NodePort on other machines pass.
func TestNodePortNotElsewhere(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = allAddresses
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	for _, f := range model.Families {
		if err := c.Node.AddAddress(web.clusterIP(f).Addr()); err != nil {
			t.Fatal(err)
		}
	}
	echo, err := c.Pods[1].Echo(web.NodePort())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		ask(t, c.Node, network, web.clusterIP(family))
		refused(t, slices.Concat(c.Pods, []*netlab.Host{c.Node}), network, netip.AddrPortFrom(web.clusterIP(family).Addr(), web.NodePort()))
		for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[0]} {
			to := netip.AddrPortFrom(c.Pods[1].Address(family), web.NodePort())
			if got := ask(t, from, network, to).Name; got != c.Pods[1].Name {
				t.Errorf("%s: %s answers %s, want %s", to, got, from.Name, c.Pods[1].Name)
			}
		}
	})
}
