package test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// otherAddress belongs to no service.
var otherAddress = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("10.97.0.1"), model.IPv6: netip.MustParseAddr("fd00:10:97::1")}

// Which source address endpoints see: from outside and from the node every
// client is masqueraded, from a pod to a ClusterIP it is not.
func TestSourceAddress(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[1]} {
			for kind, frontend := range web.frontends(c.Node, family) {
				got := ask(t, from, network, frontend)
				if kept := from == c.Pods[1] && kind == "ClusterIP"; kept {
					if got.Client != from.Address(family) {
						t.Errorf("from %s to %s: endpoint sees %s, want the client", from.Name, kind, got.Client)
					}
				} else if !c.IsNode(got.Client) {
					t.Errorf("from %s to %s: endpoint sees %s, want the node", from.Name, kind, got.Client)
				}
			}
		}
	})
}

func TestRejectWithoutEndpoints(t *testing.T) {
	c := newCluster(t, 1)
	empty := service{Name: "empty", N: 1}
	c.apply(empty)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		frontends := slices.Collect(maps.Values(empty.frontends(c.Node, family)))
		refused(t, c.allClients(), network, frontends...)
	})
}

// 4.14: one port of a service has endpoints, another one does not.
func TestRejectByPort(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods, OnlyTCP: true, Internal: "Local", External: "Local"}
	c.apply(web)
	for _, family := range model.Families {
		for _, frontend := range web.frontends(c.Node, family) {
			for _, from := range c.allClients() {
				ask(t, from, "tcp", frontend)
			}
			refused(t, c.allClients(), "udp", frontend)
		}
	}
}

// 4.23
func TestUndefinedPortOfClusterIP(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	empty := service{Name: "empty", N: 2}
	c.apply(web, empty)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		refused(t, c.allClients(), network,
			netip.AddrPortFrom(web.clusterIP(family).Addr(), servicePort+1),
			netip.AddrPortFrom(empty.clusterIP(family).Addr(), servicePort+1))
	})
}

// Such an address is dropped on the node, even if another host has it and would
// answer.
func TestUnallocatedAddressOfServiceCIDR(t *testing.T) {
	c := newCluster(t, 1)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods})
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		inside := []*netlab.Host{c.Node, c.Pods[0]}
		unallocated, foreign := service{N: 99}.clusterIP(family), otherAddress[family]
		for _, to := range []netip.Addr{unallocated.Addr(), foreign} {
			if err := c.Client.AddAddress(to); err != nil && !errors.Is(err, syscall.EEXIST) {
				t.Fatal(err)
			}
		}
		silent(t, inside, network, unallocated)
		refused(t, inside, network, netip.AddrPortFrom(foreign, servicePort)) // by its host
	})
}

// 4.43: forwarded packets are rejected without a route to the address; the node
// itself gets a routing error.
func TestRejectWithoutRoute(t *testing.T) {
	c := newCluster(t, 1)
	empty := service{Name: "empty", N: 1}
	c.apply(empty)
	if err := c.Node.RemoveDefaultRoutes(); err != nil {
		t.Fatal(err)
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for kind, frontend := range empty.frontends(c.Node, family) {
			refused(t, append(c.Pods, c.Client), network, frontend)
			_, err := c.Node.Ask(network, frontend, 0)
			if kind != "NodePort" && !errors.Is(err, syscall.ENETUNREACH) {
				t.Errorf("from the node to %s: got %v, want ENETUNREACH", kind, err)
			}
		}
	})
}
