package test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// neighbour is a nat table of another program, which masquerades what leaves the
// pods, as flannel does, and serves an address itself.
func neighbour(served netip.Addr, priority int, to *netlab.Host) string {
	return fmt.Sprintf(`table ip neighbour {
		chain pre { type nat hook prerouting priority dstnat; ip daddr %[1]s tcp dport 80 dnat to %[2]s:8080; }
		chain out { type nat hook output priority -100; ip daddr %[1]s tcp dport 80 dnat to %[2]s:8080; }
		chain post { type nat hook postrouting priority %[3]d; ip saddr != 10.128.0.0/16 ip daddr 10.128.0.0/16 masquerade; }
	}
`, served, to.IPv4, priority)
}

// Session affinity holds beside nat chains of other programs, whatever their
// priority and the order of their start.
func TestAffinityBesideOtherNAT(t *testing.T) {
	for _, priority := range []int{-198, -100, 0, 99, 100, 101} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("priority %d, neighbour first %t", priority, first), func(t *testing.T) {
				c := newCluster(t, 4)
				web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
				script := neighbour(netip.MustParseAddr("10.96.0.77"), priority, c.Pods[0])
				if first {
					c.nftLoad(script)
				}
				c.apply(web)
				if !first {
					c.nftLoad(script)
				}
				clients := c.crowd(6)
				for _, network := range []string{"tcp", "udp"} {
					b := bind(t, clients, network, web.nodePort(c.Node, model.IPv4))
					b.hold(t, "another program masquerades", network, slices.Repeat([]netip.AddrPort{web.nodePort(c.Node, model.IPv4)}, 4)...)
				}
			})
		}
	}
}

// An address of a service CIDR that another program serves is served, and a
// port of a ClusterIP as well, in either order of start; other addresses are
// dropped and other ports refused (4.23, 4.24).
func TestAddressesOfOtherPrograms(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("neighbour first %t", first), func(t *testing.T) {
			c := newCluster(t, 2)
			web := service{Name: "web", N: 1, Pods: c.Pods, Port: 443}
			theirs := netip.MustParseAddr("10.96.0.77")
			script := neighbour(theirs, 100, c.Pods[0]) +
				strings.ReplaceAll(neighbour(web.clusterIP(model.IPv4).Addr(), 100, c.Pods[0]), "neighbour", "neighbour2")
			if first {
				c.nftLoad(script)
			}
			c.apply(web)
			if !first {
				c.nftLoad(script)
			}
			for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[1]} {
				for _, to := range []netip.Addr{theirs, web.clusterIP(model.IPv4).Addr()} {
					if got := ask(t, from, "tcp", netip.AddrPortFrom(to, 80)).Name; got != c.Pods[0].Name {
						t.Errorf("%s dials %s: %s answers", from.Name, to, got)
					}
				}
			}
			silent(t, c.allClients(), "tcp", netip.AddrPortFrom(theirs, 81))
			refused(t, c.allClients(), "tcp", netip.AddrPortFrom(web.clusterIP(model.IPv4).Addr(), 81))
		})
	}
}

// 5.1: a frontend can be its own endpoint, as where an ingress controller in the
// host network listens on the port of its own NodePort.
func TestAffinityToTheFrontendItself(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: []*netlab.Host{c.Node, c.Pods[0]}, Affinity: long}
	web.Target = int(web.NodePort())
	for _, h := range web.Pods {
		e, err := h.Echo(web.NodePort())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
	}
	c.apply(web)
	clients := c.crowd(8)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		to := web.nodePort(c.Node, family)
		b := bind(t, clients, network, to)
		b.spread(t, web.Pods...)
		b.hold(t, "the node is an endpoint", network, to, to, to)
	})
}

// 4.26: pods keep their source address if they are recognised by their bridge
// and that calls iptables for forwarded packets; other clients do not.
func TestBridgeThatCallsIptables(t *testing.T) {
	for _, mode := range [][]string{
		{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", netlab.Bridge},
		{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cni"},
		clusterCIDR,
	} {
		t.Run(mode[1], func(t *testing.T) {
			c := newCluster(t, 0)
			if err := c.AddBridgedPods(2); err != nil {
				t.Fatal(err)
			}
			c.echo(c.Bridged...)
			c.flags = mode
			err := c.Node.Do(func() error {
				for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
					if err := os.WriteFile("/proc/sys/net/bridge/"+name, []byte("1"), 0); err != nil {
						return err
					}
				}
				return nil
			})
			if os.IsNotExist(err) {
				t.Skip("this kernel has no br_netfilter")
			}
			if err != nil {
				t.Fatal(err)
			}
			other := service{Name: "other", N: 1, Pods: c.Bridged[1:]}
			itself := service{Name: "itself", N: 2, Pods: c.Bridged[:1]}
			c.apply(other, itself)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				from := c.Bridged[0]
				if got := ask(t, from, network, other.clusterIP(family)).Client; got != from.Address(family) {
					t.Errorf("the endpoint sees %s, want %s of the pod", got, from.Address(family))
				}
				if got := ask(t, from, network, itself.clusterIP(family)).Client; !c.IsNode(got) {
					t.Errorf("a pod that reaches itself sees %s, want the node", got)
				}
				for _, h := range []*netlab.Host{c.Client, c.Node} {
					if got := ask(t, h, network, other.clusterIP(family)).Client; !c.IsNode(got) {
						t.Errorf("%s: the endpoint sees %s, want the node", h.Name, got)
					}
				}
			})
		})
	}
}
