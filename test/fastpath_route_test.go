//go:build guest

package test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 9.30: a connection whose route changes goes the new way, and takes the fast path there. It is not
// masqueraded: the kernel ends those that leave through another device, with rules only as well.
func TestFastPathRoute(t *testing.T) {
	c := fastCluster(t, 2, "all")
	pod := c.Pods[0]
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	flows := c.openFastFrom(t, c.Pods[1], web.clusterIP)
	pod.TestScript(t, "nft add table inet way '{ counter second { }; chain input { type filter hook input priority 0; iifname second counter name second; }; }'")
	c.second(t, pod, unix.RT_TABLE_MAIN)
	for _, f := range flows {
		eventually(t, func() error {
			before := counted(t, pod, "inet way", "second")
			f.goesOn(t, "its route has changed")
			if counted(t, pod, "inet way", "second") == before {
				return fmt.Errorf("%s %s: it goes the old way", f.network, f.family)
			}
			return nil
		})
		c.isFast(t, f)
	}
}

// 9.30: a rule that marks packets, and with that chooses their route, has decided about a connection when that joins the fast
// path. When the rule is gone, that has an effect on other connections only.
func TestFastPathMarkedRoute(t *testing.T) {
	c := fastCluster(t, 2, "all")
	pod := c.Pods[0]
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	c.startServing(web)
	c.openFastFrom(t, c.Pods[1], web.clusterIP) // others join with one of their first packets
	pod.TestScript(t, "nft add table inet way '{ counter second { }; chain input { type filter hook input priority 0; iifname second counter name second; }; }'")
	const mark, table = 7, 100
	c.second(t, pod, table)
	for _, family := range model.Families {
		err := c.Node.Do(func() error {
			rule := netlink.NewRule()
			rule.Family, rule.Mark, rule.Table = unix.AF_INET, mark, table
			if family == model.IPv6 {
				rule.Family = unix.AF_INET6
			}
			return netlink.RuleAdd(rule)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c.nftLoad(fmt.Sprintf("table inet marks { chain prerouting { type filter hook prerouting priority mangle; iifname %s meta mark set %d; }; }", c.Pods[1].Name, mark))
	marked := c.openFastFrom(t, c.Pods[1], web.clusterIP)
	c.nft("delete", "table", "inet", "marks")
	others := openFlowsFor(t, c.Pods[1], web.clusterIP, answerTime)
	for second, flows := range map[bool][]flow{true: marked, false: others} {
		for _, f := range flows {
			before := counted(t, pod, "inet way", "second")
			f.goesOn(t, "no rule sets marks any more")
			if got := counted(t, pod, "inet way", "second") > before; got != second {
				t.Errorf("%s %s: it goes the second way: %t, want %t", f.network, f.family, got, second)
			}
		}
	}
	c.areFast(t, marked)
}

// second connects the node with a pod by a second pair of devices. The routes of the pod move there, and the node gets
// one in a routing table.
func (c *cluster) second(t *testing.T, pod *netlab.Host, table int) {
	t.Helper()
	const name = "second"
	ends := make(map[*netlab.Host]netlink.Link)
	err := c.Node.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(pod.Handle())})
	})
	for _, h := range []*netlab.Host{c.Node, pod} {
		err = errors.Join(err, h.Do(func() (err error) {
			if ends[h], err = netlink.LinkByName(name); err != nil {
				return err
			}
			return netlink.LinkSetUp(ends[h])
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range model.Families {
		own, gateway := pod.Address(family), c.Gateway(pod, family)
		everything, _ := netip.AddrFromSlice(make([]byte, own.BitLen()/8))
		err = errors.Join(err,
			c.Node.Do(func() error { return routeBy(table, ends[c.Node], netip.PrefixFrom(own, own.BitLen()), own, ends[pod]) }),
			pod.Do(func() error {
				return errors.Join(routeBy(unix.RT_TABLE_MAIN, ends[pod], netip.PrefixFrom(gateway, gateway.BitLen()), gateway, ends[c.Node]),
					routeBy(unix.RT_TABLE_MAIN, ends[pod], netip.PrefixFrom(everything, 0), gateway, ends[c.Node]))
			}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// routeBy moves a route of the namespace of the calling thread to a device, at whose other end is the gateway.
func routeBy(table int, by netlink.Link, to netip.Prefix, gateway netip.Addr, peer netlink.Link) error {
	index := by.Attrs().Index
	r := &netlink.Route{Table: table, LinkIndex: index, Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}}
	if to.Addr() == gateway {
		r.Scope = netlink.SCOPE_LINK
	} else {
		r.Gw = gateway.AsSlice()
	}
	return errors.Join(netlink.RouteReplace(r),
		netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: peer.Attrs().HardwareAddr}))
}
