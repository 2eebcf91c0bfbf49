package test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var (
	// secondAddress is one more address of the node.
	secondAddress = map[model.Family]netip.Addr{
		model.IPv4: netip.MustParseAddr("198.18.7.1"), model.IPv6: netip.MustParseAddr("2001:db8:7::1")}
	loopback = map[model.Family]netip.Addr{
		model.IPv4: netip.MustParseAddr("127.0.0.1"), model.IPv6: netip.IPv6Loopback()}
)

// nodePortAddresses returns the addresses of the node by what they are.
func (c *cluster) nodePortAddresses(f model.Family) map[string]netip.Addr {
	return map[string]netip.Addr{
		"first":   c.Node.Address(f),
		"second":  secondAddress[f],
		"gateway": c.Gateway(c.Pods[0], f),
	}
}

// addSecondAddress gives the node its second address.
func (c *cluster) addSecondAddress() {
	c.t.Helper()
	for _, a := range secondAddress {
		if err := c.Node.AddAddress(a); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Section 6: on which addresses of the node NodePorts are served. On the others
// the node itself refuses (4.38).
func TestNodePortAddresses(t *testing.T) {
	t.Parallel()
	const all, none = "first second gateway", ""
	for _, test := range []struct{ name, flag, want4, want6 string }{
		{"6.2 unset", "", "first", "first"},
		{"6.3 primary", "primary", "first", "first"},
		{"6.6 everything", "0.0.0.0/0,::/0", all, all},
		{"6.5 everything and more", "192.0.2.0/24,0.0.0.0/0,::/0,2001:db8::/64", all, all},
		{"6.5 everything of IPv4", "0.0.0.0/0,2001:db8:7::1/128", all, "second"},
		{"6.4 IPv4 alone", "198.18.0.0/16", "second", all},
		{"6.4 IPv6 alone", "2001:db8:7::/64", all, "second"},
		{"6.7 ranges", "198.18.0.0/16,192.0.2.0/24,2001:db8:7::/64,2001:db8::/64", "first second", "first second"},
		{"6.7 overlapping ranges", "198.18.0.0/16,198.18.7.0/24,198.18.7.1/32,2001:db8:7::/64,2001:db8:7::/64", "second", "second"},
		{"6.9 ranges without an address", "10.255.0.0/16,fd00:ffff::/64", none, none},
		{"6.7 loopback", "127.0.0.0/8", none, all},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.addSecondAddress()
			if test.flag != "" {
				c.flags = append([]string{"--nodeport-addresses", test.flag}, clusterCIDR...)
			}
			web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
			empty := service{Name: "empty", N: 2}
			c.apply(web, empty)
			want := map[model.Family]string{model.IPv4: test.want4, model.IPv6: test.want6}
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				c := c.in(t)
				for name, a := range c.nodePortAddresses(family) {
					c.checkNodePort(network, a, web, slices.Contains(strings.Fields(want[family]), name))
					c.checkNodePort(network, a, empty, false)
				}
				refused(t, []*netlab.Host{c.Node}, network, netip.AddrPortFrom(loopback[family], web.NodePort())) // 4.35
			})
		})
	}
}

// checkNodePort checks whether the NodePort of a service is served on an
// address of the node, or refused.
func (c *cluster) checkNodePort(network string, a netip.Addr, s service, served bool) {
	c.t.Helper()
	clients := []*netlab.Host{c.Client, c.Node, c.Pods[1]}
	to := netip.AddrPortFrom(a, s.NodePort())
	if !served {
		refused(c.t, clients, network, to)
		return
	}
	for _, from := range clients {
		ask(c.t, from, network, to)
	}
}

// 6.1: each word occurs once, and a range has a length.
func TestInvalidNodePortAddresses(t *testing.T) {
	c := newCluster(t, 0)
	c.write()
	for _, flag := range []string{"primary,primary", "10.0.0.0/8,all,all", "10.20.30.40", "nonsense"} {
		c.flags = []string{"--nodeport-addresses", flag}
		c.mustRun(2, c.command("apply"))
	}
}

// 4.36, 4.38: a process of the node that listens on the NodePort is hidden
// where the service is, and answers on other addresses.
func TestNodePortAndListener(t *testing.T) {
	c := newCluster(t, 1)
	c.addSecondAddress()
	second, err := c.Node.Alias(netip.MustParseAddr("198.18.7.2"), netip.MustParseAddr("2001:db8:7::2"))
	if err != nil {
		t.Fatal(err)
	}
	web := service{Name: "web", N: 1, Pods: c.Pods}
	for _, h := range []*netlab.Host{c.Node, second} {
		echo, err := h.Echo(web.NodePort())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { echo.Close() })
	}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		if got := ask(t, c.Client, network, web.nodePort(c.Node, family)).Name; got != c.Pods[0].Name {
			t.Errorf("%s answers on the first address, want %s", got, c.Pods[0].Name)
		}
		if got := ask(t, c.Client, network, netip.AddrPortFrom(second.Address(family), web.NodePort())).Name; got != c.Node.Name {
			t.Errorf("%s answers on another address, want %s", got, c.Node.Name)
		}
	})
}

// 4.6: a process of the node whose own port is the number of a NodePort is
// refused as any other: the answer to it is no packet for the NodePort.
func TestRefusedAtNodePort(t *testing.T) {
	c := newCluster(t, 1)
	web, empty := service{Name: "web", N: 1, Pods: c.Pods}, service{Name: "empty", N: 2}
	c.apply(web, empty)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, s := range []service{web, empty} {
			for name, to := range empty.frontends(c.Node, family) {
				if err := wantRefused(c.Node.At(s.NodePort()), network, to); err != nil {
					t.Errorf("%s from the NodePort of %s: %v", name, s.Name, err)
				}
			}
		}
	})
}

// 6.6, 6.8: a running daemon follows the addresses of the node.
func TestDaemonFollowsNodeAddresses(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]string{
		"6.6 everything": "0.0.0.0/0,::/0", "6.8 ranges": "198.18.0.0/16,2001:db8:7::/64"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.flags = append([]string{"--nodeport-addresses", flag}, clusterCIDR...)
			web := service{Name: "web", N: 1, Pods: c.Pods}
			c.write(web)
			d := c.start()
			c.serves(web)
			for range 2 { // and once again
				c.addSecondAddress()
				c.nodePortBecomes(web, nil)
				for _, a := range secondAddress {
					if err := errors.Join(c.Node.RemoveAddress(a), c.Client.AddAddress(a)); err != nil {
						t.Fatal(err)
					}
				}
				c.nodePortBecomes(web, syscall.ECONNREFUSED) // by the client, who has the address now
				for _, a := range secondAddress {
					if err := c.Client.RemoveAddress(a); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.stop(t)
		})
	}
}

// nodePortBecomes waits for the result of dialling the NodePort on the second
// address from a pod; nil is an answer.
func (c *cluster) nodePortBecomes(s service, want error) {
	c.t.Helper()
	for _, family := range model.Families {
		c.becomes(c.Pods[0], netip.AddrPortFrom(secondAddress[family], s.NodePort()), want)
	}
}

// becomes waits for the result of a client that dials; nil is an answer.
func (c *cluster) becomes(from *netlab.Host, to netip.AddrPort, want error) {
	c.t.Helper()
	eventually(c.t, func() error {
		if _, err := from.Ask("tcp", to, silence); !errors.Is(err, want) {
			return fmt.Errorf("%s: got %w, want %v", to, err, want)
		}
		return nil
	})
}
