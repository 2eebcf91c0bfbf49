package test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// balancerCIDRs are ranges with the load balancer addresses of the tests.
const balancerCIDRs = "203.0.113.0/24,2001:db8:2::/64"

// newRoutedCluster makes a cluster whose client is a router: it sends the addresses of load
// balancers to the node, whose default route leads back to it. The user is behind it.
func newRoutedCluster(t *testing.T) (c *cluster, user *netlab.Host) {
	t.Helper()
	c = newCluster(t, 2)
	err := c.Client.Do(func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/send_redirects", []byte("0"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	if user, err = c.Client.AddPod("user", netip.MustParsePrefix("172.16.0.0/24"), netip.MustParsePrefix("2001:db8:16::/64")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	c.nftLoad("table inet watch { counter arrived { }; chain pre { type filter hook prerouting priority -300; iifname uplink ip daddr 203.0.113.0/24 counter name arrived; iifname uplink ip6 daddr 2001:db8:2::/64 counter name arrived; }; }\n")
	return c, user
}

// arrived returns how many packets to the ranges came over the uplink since the last call.
func (c *cluster) arrived() int {
	c.t.Helper()
	n, err := strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(c.nft("reset", "counter", "inet", "watch", "arrived"))[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// 4.71, 4.72: a packet to a port that no Service has goes back and forth between the node and
// its router until its TTL ends; with the ranges it is refused, or dropped if no Service has
// its address. Addresses of the node stay its own, whenever it gets them, and what another
// program serves is served.
func TestLoadBalancerCIDRs(t *testing.T) {
	c, user := newRoutedCluster(t)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	at := func(a netip.AddrPort, port uint16) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), port) }
	unused := service{N: 99}
	c.apply(web)
	for _, family := range model.Families {
		for _, to := range []netip.AddrPort{at(web.loadBalancerIP(family), 81), unused.loadBalancerIP(family)} {
			c.arrived()
			if err := wantSilence(user, "udp", to); err != nil {
				t.Error(err)
			}
			if n := c.arrived(); n < 30 {
				t.Errorf("without ranges, a packet to %s arrived %d times", to, n)
			}
		}
	}
	c.flags = append(c.flags[:2:2], "--load-balancer-cidrs", balancerCIDRs)
	c.apply(web)
	c.arrived()
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		clients := append(c.Pods, user, c.Client, c.Node)
		refused(t, clients, network, at(web.loadBalancerIP(family), 81))
		silent(t, append(c.Pods, user, c.Client), network, unused.loadBalancerIP(family))
		for _, from := range clients {
			ask(t, from, network, web.loadBalancerIP(family))
		}
	})
	for _, family := range model.Families {
		pings(t, []*netlab.Host{user, c.Node}, web.loadBalancerIP(family).Addr(), "port unreachable", isUnreachable)
		pings(t, []*netlab.Host{user}, unused.loadBalancerIP(family).Addr(), "silence", isSilence)
	}
	if n := c.arrived(); n > 200 { // TCP may send more than a packet
		t.Errorf("with ranges, %d packets arrived", n)
	}
	t.Run("address of the node", func(t *testing.T) {
		for _, of := range []service{web, unused} {
			own := [2]netip.Addr{of.loadBalancerIP(model.IPv4).Addr(), of.loadBalancerIP(model.IPv6).Addr()}
			alias, err := c.Node.Alias(own[0], own[1])
			if err != nil {
				t.Fatal(err)
			}
			server, err := alias.Echo(echoPort)
			if err != nil {
				t.Fatal(err)
			}
			clients := []*netlab.Host{user, c.Pods[0], c.Node}
			for _, a := range own {
				pings(t, clients, a, "a reply", isReply)
				for _, from := range clients {
					for _, network := range []string{"tcp", "udp"} {
						if got := ask(t, from, network, netip.AddrPortFrom(a, echoPort)); got.Name != c.Node.Name {
							t.Errorf("from %s: %s answers", from.Name, got.Name)
						}
					}
				}
			}
			if err := errors.Join(server.Close(), c.Node.RemoveAddress(own[0]), c.Node.RemoveAddress(own[1])); err != nil {
				t.Fatal(err)
			}
		}
		silent(t, []*netlab.Host{user}, "udp", unused.loadBalancerIP(model.IPv4), unused.loadBalancerIP(model.IPv6))
	})
	t.Run("another program", func(t *testing.T) {
		c := c.in(t)
		theirs := unused.loadBalancerIP(model.IPv4)
		c.nftLoad(neighbour(theirs.Addr(), 100, c.Pods[0]))
		for _, from := range []*netlab.Host{user, c.Node, c.Pods[1]} {
			if got := ask(t, from, "tcp", at(theirs, 80)).Name; got != c.Pods[0].Name {
				t.Errorf("%s dials %s: %s answers", from.Name, theirs, got)
			}
		}
		refused(t, []*netlab.Host{user}, "tcp", at(web.loadBalancerIP(model.IPv4), 81))
	})
}

// 4.72: a range that has the network of the node, and networks behind its router, cuts nothing off
// but unused addresses that others ask the node for: not what the node itself sends, nor machines
// on its links, which change.
func TestLoadBalancerCIDRsWithTheNetworkOfTheNode(t *testing.T) {
	c, user := newRoutedCluster(t)
	web, unused := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{N: 99}
	c.echo(c.Client, user)
	c.flags = append(c.flags[:2:2], "--load-balancer-cidrs", balancerCIDRs+",192.0.2.0/24,2001:db8::/64,172.16.0.0/16,2001:db8:16::/64")
	c.write(web)
	c.start()
	c.answersFrom(web, "pod-0")
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		to := netip.AddrPortFrom(c.Client.Address(family), echoPort)
		for _, from := range []*netlab.Host{c.Node, c.Pods[0], c.Pods[1]} {
			ask(t, from, network, to)
			ask(t, from, network, web.loadBalancerIP(family))
		}
		behind := netip.AddrPortFrom(user.Address(family), echoPort)
		ask(t, c.Node, network, behind)
		silent(t, c.Pods, network, behind)
		silent(t, []*netlab.Host{user}, network, unused.loadBalancerIP(family))
	})
	c.arrived()
	if err := wantSilence(user, "udp", unused.loadBalancerIP(model.IPv4)); err != nil {
		t.Error(err)
	}
	if n := c.arrived(); n != 1 {
		t.Errorf("a packet to an unused address arrived %d times, want once", n)
	}
	machine, network := netip.MustParseAddrPort("203.0.113.130:8080"), "203.0.113.129/25"
	if err := c.Client.AddAddress(machine.Addr()); err != nil {
		t.Fatal(err)
	}
	silent(t, c.Pods[1:], "udp", machine)
	c.mustRun(0, exec.Command("ip", "address", "add", network, "dev", "uplink"))
	eventually(t, func() error { return wantRefused(c.Pods[1], "udp", machine) }) // by that machine
	c.mustRun(0, exec.Command("ip", "address", "del", network, "dev", "uplink"))
	eventually(t, func() error { return wantSilence(c.Pods[1], "udp", machine) })
}

// 4.65, 4.69, 4.71: the same on a machine without Kubernetes, which answers pings from an
// address of an interface.
func TestBalanceInRanges(t *testing.T) {
	c, user := newRoutedCluster(t)
	c.flags = []string{"--load-balancer-cidrs", balancerCIDRs, "--answer-ping"}
	listen := []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:2::10")}
	c.applyText(fmt.Sprintf("kind: Balance\nname: web\nlisten: ['%s', '%s']\nbackends: ['%s', '%s']\n", netip.AddrPortFrom(listen[0], 80),
		netip.AddrPortFrom(listen[1], 80), endpointOf(c.Pods[0], model.IPv4), endpointOf(c.Pods[0], model.IPv6)))
	clients := []*netlab.Host{user, c.Client, c.Node}
	for _, to := range listen {
		for _, from := range clients {
			ask(t, from, "tcp", netip.AddrPortFrom(to, 80))
		}
		refused(t, clients, "tcp", netip.AddrPortFrom(to, 22))
		refused(t, clients, "udp", netip.AddrPortFrom(to, 80))
		pings(t, clients, to, "a reply", isReply)
		pings(t, []*netlab.Host{user}, to.Next(), "silence", isSilence)
	}
}
