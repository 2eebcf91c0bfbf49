//go:build guest

package test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// changing counts packets of UDP in each hook on their way, and changes them. The first table has
// rules that a flow table comes after.
const changing = `
table netdev early {
	counter early { }
	chain ingress { type filter hook ingress device "uplink" priority -10; meta l4proto udp counter name early; }
}
table inet changing {
	counter prerouting { }
	counter postrouting { }
	counter marked { }
	chain prerouting { type filter hook prerouting priority mangle; meta l4proto udp counter name prerouting meta mark set 7; }
	chain postrouting {
		type filter hook postrouting priority mangle;
		meta l4proto udp counter name postrouting
		meta l4proto udp meta mark 7 counter name marked
		meta l4proto udp ip dscp set cs5
		meta l4proto udp ip6 dscp set cs5
		meta l4proto udp ip ttl set 99
		meta l4proto udp ip6 hoplimit set 99
	}
}`

// arriving counts datagrams at an endpoint, by their form.
const arriving = `
table inet arriving {
	counter arrived { }
	counter unchanged { }
	counter changed { }
	chain input {
		type filter hook input priority filter;
		udp dport 8080 counter name arrived
		udp dport 8080 ip dscp af21 ip ttl 63 counter name unchanged
		udp dport 8080 ip6 dscp af21 ip6 hoplimit 63 counter name unchanged
		udp dport 8080 ip dscp cs5 ip ttl 99 counter name changed
		udp dport 8080 ip6 dscp cs5 ip6 hoplimit 99 counter name changed
	}
}`

// af21 is a class of DSCP, as a value of TOS; hops are those of a usual packet.
const af21, hops = 18 << 2, 64

// counted returns the packets of a counter.
func counted(t *testing.T, in *netlab.Host, table, counter string) int {
	t.Helper()
	found := packetsOf.FindStringSubmatch(in.NFT(t, append(append([]string{"list", "counter"}, strings.Fields(table)...), counter)...))
	if found == nil {
		t.Fatalf("no counter %s in table %s", counter, table)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// 9.30: established packets meet no rule in prerouting, forward and postrouting, so none counts, marks or
// changes them. DSCP stays as the client sent it, the TTL is decremented, and connection tracking
// counts. Rules at ingress before the flow table see all.
func TestFastPathUnchanged(t *testing.T) {
	c := fastCluster(t, 1, "all")
	c.set("net.netfilter.nf_conntrack_acct", "1")
	c.nftLoad(changing)
	pod := c.Pods[0]
	pod.TestScript(t, "nft -f - <<'end'\n"+arriving+"\nend\n")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.startServing(web)
	const questions = 10
	for _, family := range model.Families {
		s := c.dialFast(t, "udp", web.clusterIP(family))
		s.set(unix.IP_TOS, unix.IPV6_TCLASS, af21)
		s.set(unix.IP_TTL, unix.IPV6_UNICAST_HOPS, hops)
		if counted(t, pod, "inet arriving", "changed") == 0 || counted(t, c.Node, "inet changing", "marked") == 0 {
			t.Fatalf("%s: the rules changed no packet before the fast path", family)
		}
		type counters struct{ early, prerouting, marked, postrouting, all, unchanged, tracked int }
		count := func() counters {
			node := func(name string) int { return counted(t, c.Node, "inet changing", name) }
			return counters{counted(t, c.Node, "netdev early", "early"), node("prerouting"), node("marked"), node("postrouting"),
				counted(t, pod, "inet arriving", "arrived"), counted(t, pod, "inet arriving", "unchanged"), c.tracked(t, s)}
		}
		before := count()
		for range questions {
			if n, err := s.ask(10); err != nil || n > 0 {
				t.Errorf("%s: %d packets passed the hook forward, %v", family, n, err)
			}
		}
		after := count()
		got := counters{after.early - before.early, after.prerouting - before.prerouting, after.marked - before.marked, after.postrouting - before.postrouting,
			after.all - before.all, after.unchanged - before.unchanged, after.tracked - before.tracked}
		if want := (counters{early: questions, all: questions, unchanged: questions, tracked: 2 * questions}); got != want {
			t.Errorf("%s: got %+v, want %+v", family, got, want)
		}
	}
}

// tracked returns how many packets connection tracking has counted of a connection.
func (c *cluster) tracked(t *testing.T, s *shaped) (packets int) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if s.family == model.IPv6 {
		family = unix.AF_INET6
	}
	err := c.Node.Do(func() error {
		all, err := netlinkio.List(func() ([]*netlink.ConntrackFlow, error) {
			return netlink.ConntrackTableList(netlink.ConntrackTable, family)
		})
		for _, f := range all {
			if s.LocalAddr().String() == net.JoinHostPort(f.Forward.SrcIP.String(), strconv.Itoa(int(f.Forward.SrcPort))) {
				packets = int(f.Forward.Packets + f.Reverse.Packets)
			}
		}
		return err
	})
	if err != nil || packets == 0 {
		t.Fatalf("no entry in connection tracking counts packets of %s: %v", s.LocalAddr(), err)
	}
	return packets
}

// 9.30: filters of tc take packets, where they arrive and where they leave.
func TestFastPathTrafficControl(t *testing.T) {
	c := fastCluster(t, 1, "all")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.startServing(web)
	for _, at := range []struct {
		device string
		parent uint32
	}{{"uplink", netlink.HANDLE_MIN_INGRESS}, {c.Pods[0].Name, netlink.HANDLE_MIN_EGRESS}} {
		flows := c.openFastFrom(t, c.Client, web.clusterIP)
		stop := c.dropAt(t, at.device, at.parent)
		for _, f := range flows {
			f.Within(silence)
			if got, err := f.Ask(); err == nil {
				t.Errorf("%s %s: a filter of tc at %s drops all, and %s answers", f.network, f.family, at.device, got.Name)
			}
			f.Within(answerTime)
		}
		stop()
		for _, f := range flows {
			c.isFast(t, f) // an answer to the question that was lost may come first
		}
	}
}

// dropAt has tc drop all packets at a device.
func (c *cluster) dropAt(t *testing.T, device string, parent uint32) (stop func()) {
	t.Helper()
	var qdisc netlink.Qdisc
	err := c.Node.Do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		index := l.Attrs().Index
		qdisc = &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
		if err := netlink.QdiscAdd(qdisc); err != nil {
			return fmt.Errorf("add clsact: %w", err)
		}
		drop := &netlink.GenericAction{ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_SHOT}}
		return netlink.FilterAdd(&netlink.MatchAll{Actions: []netlink.Action{drop},
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Priority: 1, Protocol: unix.ETH_P_ALL}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.Node.Do(func() error { return netlink.QdiscDel(qdisc) }); err != nil {
			t.Fatal(err)
		}
	}
}
