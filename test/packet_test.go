package test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// otherAddress belongs to no service.
var otherAddress = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("10.97.0.1"), model.IPv6: netip.MustParseAddr("fd00:10:97::1")}

// Who sees which source address: from outside and from the node every client
// is masqueraded, from a pod to a ClusterIP it is not.
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

func TestHairpin(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for kind, frontend := range web.frontends(c.Node, family) {
			if got := ask(t, c.Pods[0], network, frontend); !c.IsNode(got.Client) {
				t.Errorf("%s: the pod sees %s, want the node", kind, got.Client)
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
		refused(t, c.everyone(), network, frontends...)
	})
}

func TestUndefinedPortOfClusterIP(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	empty := service{Name: "empty", N: 2}
	c.apply(web, empty)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		refused(t, c.everyone(), network,
			netip.AddrPortFrom(web.clusterIP(family).Addr(), servicePort+1),
			netip.AddrPortFrom(empty.clusterIP(family).Addr(), servicePort+1))
	})
}

// Such an address is dropped on the node, even where somebody has it who would
// answer.
func TestUnallocatedAddressOfServiceCIDR(t *testing.T) {
	c := newCluster(t, 1)
	c.apply(service{Name: "web", N: 1, Pods: c.Pods})
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
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

func TestNodePortNotOnLoopback(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	loopback := map[model.Family]netip.Addr{
		model.IPv4: netip.MustParseAddr("127.0.0.1"), model.IPv6: netip.IPv6Loopback()}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		refused(t, []*netlab.Host{c.Node}, network, netip.AddrPortFrom(loopback[family], web.NodePort()))
	})
}
