package test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// newPingCluster makes a cluster whose node answers echo requests to Services. Its node
// filters reverse paths, and has no IPv4 address on the link to the first pod, as with
// Calico.
func newPingCluster(t *testing.T) *cluster {
	t.Helper()
	c := newWideCluster(t, 2, 1)
	c.flags = append(c.flags[:2:2], "--answer-ping")
	err := c.Node.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0); err != nil {
			return err
		}
		link, err := netlink.LinkByName(c.Pods[0].Name)
		if err != nil {
			return err
		}
		list, err := netlinkio.List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(link, &list[0]); err != nil { // and with it the route
			return err
		}
		pod := netlink.NewIPNet(c.Pods[0].IPv4.AsSlice())
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: pod, Scope: netlink.SCOPE_LINK})
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// 4.65 to 4.68: who gets an answer from which address.
func TestAnswerPing(t *testing.T) {
	c := newPingCluster(t)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	empty := service{Name: "empty", N: 2}
	limited := service{Name: "limited", N: 3, Pods: c.Pods, SourceRanges: otherRanges}
	local := service{Name: "local", N: 4, Pods: c.Remote, External: "Local"}
	whole := service{Name: "whole", N: 5, Pods: c.Pods, Annotations: map[string]string{"nftproxy.dev/ports": "all",
		"nftproxy.dev/denied-sources": c.Client.IPv4.String() + "," + c.Client.IPv6.String()}}
	c.apply(web, empty, limited, local, whole)
	inside := append(c.Remote, c.Node, c.Pods[0], c.Pods[1])
	all := append(inside, c.Client)
	outside := []*netlab.Host{c.Client}
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			for _, a := range []netip.AddrPort{web.clusterIP(family), web.externalIP(family), web.loadBalancerIP(family), limited.clusterIP(family), local.clusterIP(family)} {
				pings(t, all, a.Addr(), "a reply", isReply)
			}
			pings(t, all, empty.clusterIP(family).Addr(), "port unreachable", isUnreachable)
			pings(t, outside, limited.loadBalancerIP(family).Addr(), "silence", isSilence)
			pings(t, inside, local.loadBalancerIP(family).Addr(), "a reply", isReply)
			pings(t, outside, local.loadBalancerIP(family).Addr(), "silence", isSilence)
			pings(t, inside, whole.loadBalancerIP(family).Addr(), "a reply", isReply)
			pings(t, outside, whole.clusterIP(family).Addr(), "silence", isSilence)
			pings(t, all, c.Node.Address(family), "a reply", isReply)
			for _, from := range all {
				if err := from.PingSize(web.loadBalancerIP(family).Addr(), patience, 6000); err != nil {
					t.Errorf("6,000 bytes from %s: %v", from.Name, err)
				}
			}
		})
	}
	c.apply(service{Name: "web", N: 1})
	for _, family := range model.Families {
		pings(t, outside, web.loadBalancerIP(family).Addr(), "silence without endpoints", isSilence)
		pings(t, all, web.clusterIP(family).Addr(), "port unreachable without endpoints", isUnreachable)
	}
}

// 4.66: the node answers by itself for an address that it has, in whatever order it gets
// that and a Service does: the rules are not passed, and there is no endpoint.
func TestAnswerPingOfOwnAddress(t *testing.T) {
	c := newPingCluster(t)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	for _, family := range model.Families {
		if err := c.Node.AddAddress(web.loadBalancerIP(family).Addr()); err != nil {
			t.Fatal(err)
		}
	}
	c.nftLoad("table inet watch { chain in { type filter hook input priority 10; ct status dnat meta l4proto { icmp, ipv6-icmp } reject; }; }\n")
	for _, family := range model.Families {
		a := web.loadBalancerIP(family).Addr()
		pings(t, c.allClients(), a, "a reply of the node", isReply)
		if err := c.Node.RemoveAddress(a); err != nil {
			t.Fatal(err)
		}
		pings(t, c.allClients(), a, "a reply that the table refuses", func(err error) bool { return err != nil })
	}
}

// 4.70: an address that two Services share is answered for while one has endpoints.
func TestAnswerPingOfSharedAddress(t *testing.T) {
	c := newPingCluster(t)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	other := service{Name: "other", N: 2, LoadBalancerIPs: web.VIPs(nil, "203.0.113.%d", "2001:db8:2::%d"), Port: 443, SourceRanges: otherRanges}
	for _, state := range []struct {
		name       string
		web, other []*netlab.Host
		want       func(error) bool
	}{
		{"both", c.Pods, c.Pods, isReply},
		{"the first one", c.Pods, nil, isReply},
		{"the other one, which restricts", nil, c.Pods, isSilence},
		{"none", nil, nil, isSilence},
		{"both again", c.Pods, c.Pods, isReply},
	} {
		web.Pods, other.Pods = state.web, state.other
		c.apply(web, other)
		for _, family := range model.Families {
			pings(t, []*netlab.Host{c.Client}, netip.MustParseAddr(other.LoadBalancerIPs[map[model.Family]int{model.IPv4: 0, model.IPv6: 1}[family]]), state.name, state.want)
		}
	}
}

// 4.65 to 4.68, 4.71: what explain says, with rules in the kernel and for a file.
func TestExplainPing(t *testing.T) {
	c := newPingCluster(t)
	c.flags = append(c.flags, "--load-balancer-cidrs", balancerCIDRs)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	empty := service{Name: "empty", N: 2}
	limited := service{Name: "limited", N: 3, Pods: c.Pods, SourceRanges: otherRanges}
	local := service{Name: "local", N: 4, Pods: c.Remote, External: "Local"}
	c.apply(web, empty, limited, local)
	for _, q := range []struct{ what, want string }{
		{"icmp default/web", "answered: this node answers in place of the Service; default/web (ClusterIP); dnat to " + c.Node.IPv4.String()},
		{"icmpv6 " + web.loadBalancerIP(model.IPv6).Addr().String(), "answered: this node answers in place of the Service; default/web (load balancer IP)"},
		{"icmp default/empty", "rejected: this node does not answer, because no endpoint of the Service can take connections"},
		{"icmp " + limited.loadBalancerIP(model.IPv4).Addr().String(), "dropped: the source is in none of the ranges that the Service admits; default/limited (load balancer IP)"},
		{"icmp " + local.loadBalancerIP(model.IPv4).Addr().String(), "dropped: the Service wants endpoints of this node for clients outside of the cluster, and there is none; default/local"},
		{"icmp " + c.Node.IPv4.String(), "not served by nftproxy"},
		{"tcp " + netip.AddrPortFrom(web.loadBalancerIP(model.IPv4).Addr(), 81).String(), "rejected: no Service has this port of the address, which is in --load-balancer-cidrs"},
		{"tcp 203.0.113.99:81", "dropped: no Service has this address of --load-balancer-cidrs"},
	} {
		from := c.Client.IPv4
		if strings.HasPrefix(q.what, "icmpv6") {
			from = c.Client.IPv6
		}
		for _, flags := range [][]string{nil, append([]string{"-f", c.file, "--hostname-override", nodeName}, c.flags...)} {
			cmd := c.command("explain")
			cmd.Args = slices.Concat(cmd.Args[:1], []string{"explain", "--from", from.String()}, strings.Fields(q.what), flags)
			got := c.mustRun(0, cmd)
			for _, want := range strings.Split(q.want, "; ") {
				if !strings.Contains(got, want) {
					t.Errorf("%s %v: no %q in\n%s", q.what, flags, want, got)
				}
			}
		}
	}
}

// 4.65: a running ping is one connection. It ends, or begins to be answered, when the
// Service loses its last endpoint, or gets one.
func TestPingGoesOn(t *testing.T) {
	c := newPingCluster(t)
	c.flags = append(c.flags, "--min-sync-period", "0s")
	web := service{Name: "web", N: 1}
	c.write(web)
	c.start()
	const id = 77
	becomes := func(what string, is func(error) bool) {
		t.Helper()
		for _, family := range model.Families {
			netlab.Eventually(t, patience, func() error {
				if err := c.Client.PingID(web.loadBalancerIP(family).Addr(), silence, id); !is(err) {
					return fmt.Errorf("%s: %v, want %s", family, err, what)
				}
				return nil
			})
		}
	}
	becomes("silence before", isSilence)
	web.Pods = c.Pods
	c.write(web)
	becomes("a reply", isReply)
	web.Pods = nil
	c.write(web)
	becomes("silence", isSilence)
	web.Pods = c.Pods
	c.write(web)
	becomes("a reply again", isReply)
}
