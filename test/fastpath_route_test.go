//go:build guest

package test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
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
	c.marks(t, c.Pods[1], pod)
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

// 9.30: a connection that was there before it may take the fast path, and whose next packet is an answer. Its questions have a
// mark that chooses their route, and answers have none: it takes the fast path with a question, and questions keep their route.
func TestFastPathMarkedQuestions(t *testing.T) {
	c := fastCluster(t, 2, "services")
	pod := c.Pods[0]
	const port = 9000
	web := service{Name: "web", N: 1, Pods: c.Pods[:1], Target: port}
	speak := c.speaker(t, pod, port)
	c.write(web)
	c.startServing(web)
	pod.TestScript(t, "nft add table inet way '{ counter second { }; chain input { type filter hook input priority 0; iifname second counter name second; }; }'")
	c.marks(t, c.Pods[1], pod)
	flows := openFlowsFor(t, c.Pods[1], web.clusterIP, answerTime)
	for _, f := range flows {
		eventually(t, func() error {
			f.goesOn(t, "it stays with the rules")
			if entry := c.entry(f); !strings.Contains(entry, "[ASSURED]") {
				return fmt.Errorf("%s %s: not assured: %s", f.network, f.family, entry)
			}
			return nil
		})
	}
	web.Annotations = map[string]string{"nftproxy.dev/fast-path": "use"}
	c.write(web)
	netlab.Eventually(t, startTime, func() error {
		list, err := c.Node.Output("nft", "list", "table", "inet", "nftproxy-fast-path")
		for _, part := range []string{"10.96.0.1 . udp . 80", "fd00:10:96::1 . udp . 80", "second"} {
			if err != nil || !strings.Contains(list, part) {
				return fmt.Errorf("the table has no %s: %v\n%s", part, err, list)
			}
		}
		return nil
	})
	speak()
	for _, f := range flows {
		if got, err := f.Hear(); err != nil || got.Name != f.peer {
			t.Fatalf("%s %s: heard %v, %v, want a line of %s", f.network, f.family, got, err, f.peer)
		}
	}
	for _, f := range flows {
		const questions = 10
		before := counted(t, pod, "inet way", "second")
		for range questions {
			f.goesOn(t, "an answer came first")
		}
		if n := counted(t, pod, "inet way", "second") - before; n < questions {
			t.Errorf("%s %s: %d packets of %d questions went the second way", f.network, f.family, n, questions)
		}
		c.isFast(t, f)
	}
}

// speaker starts a server of TCP and UDP on a pod, which answers each line as others do. It returns a function that sends a line
// to all clients.
func (c *cluster) speaker(t *testing.T, pod *netlab.Host, port uint16) (speak func()) {
	t.Helper()
	var mu sync.Mutex
	say := make(map[string]func() error) // by client
	hears := func(client net.Addr, answer func(line []byte) error) {
		line := fmt.Appendf(nil, "%s %d %s\n", pod.Name, port, netip.MustParseAddrPort(client.String()).Addr().Unmap())
		mu.Lock()
		defer mu.Unlock()
		say[client.Network()+client.String()] = func() error { return answer(line) }
		_ = answer(line) // the client may have gone
	}
	leaves := func(client net.Addr) {
		mu.Lock()
		defer mu.Unlock()
		delete(say, client.Network()+client.String())
	}
	for _, family := range model.Families {
		at := netip.AddrPortFrom(pod.Address(family), port).String()
		listener, err := pod.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		datagrams, err := pod.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close(); datagrams.Close() })
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				go func() {
					defer conn.Close()
					defer leaves(conn.RemoteAddr())
					for lines := bufio.NewScanner(conn); lines.Scan(); {
						hears(conn.RemoteAddr(), func(line []byte) error { _, err := conn.Write(line); return err })
					}
				}()
			}
		}()
		go func() {
			buffer := make([]byte, 1500)
			for _, from, err := datagrams.ReadFrom(buffer); err == nil; _, from, err = datagrams.ReadFrom(buffer) {
				hears(from, func(line []byte) error { _, err := datagrams.WriteTo(line, from); return err })
			}
		}()
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for client, line := range say {
			if err := line(); err != nil {
				t.Errorf("speak to %s: %v", client, err)
			}
		}
	}
}

// marks lets a rule mark packets of a client, and routes marked packets to a pod by a second pair of devices.
func (c *cluster) marks(t *testing.T, client, pod *netlab.Host) {
	t.Helper()
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
	c.nftLoad(fmt.Sprintf("table inet marks { chain prerouting { type filter hook prerouting priority mangle; iifname %s meta mark set %d; }; }", client.Name, mark))
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
