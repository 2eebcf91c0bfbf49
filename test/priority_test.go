package test

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// watchPriorities counts first packets that leave the node: those that were
// translated, those of them with a priority, and all with the priority 5.
const watchPriorities = `table inet watch {
	counter translated {}
	counter classified {}
	counter kept {}
	counter untranslated {}
	chain untranslated {
		ct state new counter name untranslated
		ct state new meta priority != none counter name classified
	}
	chain post {
		type filter hook postrouting priority 300
		ct state new ct status dnat counter name translated
		ct state new ct status dnat meta priority != none counter name classified
		meta priority 0:5 counter name kept
	}
}
`

// The class of a frontend and the number of a slot, which the priority of a packet
// holds on its way through the rules, do not leave the node. Packets to other destinations keep their priority
// (4.46).
func TestPriorityOfPackets(t *testing.T) {
	c := newCluster(t, 3)
	c.nftLoad(watchPriorities)
	web, sticky := service{Name: "web", N: 1, Pods: c.Pods}, service{Name: "sticky", N: 2, Pods: c.Pods, Affinity: long}
	c.apply(web, sticky)
	for _, f := range model.Families {
		for _, s := range []service{web, sticky} {
			for range 4 { // with affinity first a client without a binding
				c.sendWithPriority(s.clusterIP(f))
				c.sendWithPriority(s.nodePort(c.Node, f))
				ask(t, c.Client, "tcp", s.nodePort(c.Node, f))
				ask(t, c.Pods[0], "tcp", s.clusterIP(f))
			}
		}
	}
	// A frontend that is its own endpoint, which counts as not translated.
	itself := service{Name: "itself", N: 3, Pods: c.Pods[2:], Port: echoPort, ExternalIPs: []string{c.Pods[2].IPv4.String(), c.Pods[2].IPv6.String()}}
	c.apply(service{Name: "web", N: 1, Pods: c.Pods[:2]}, itself)
	c.nftLoad(fmt.Sprintf("table inet watch { chain post { ip daddr %s ct status ! dnat jump untranslated; ip6 daddr %s ct status ! dnat jump untranslated; }; }", c.Pods[2].IPv4, c.Pods[2].IPv6))
	for _, f := range model.Families {
		to := netip.AddrPortFrom(c.Pods[2].Address(f), echoPort)
		c.sendWithPriority(to)
		ask(t, c.Client, "udp", to)
		ask(t, c.Client, "tcp", to)
	}
	if n := c.counter("untranslated"); n != 6 {
		t.Errorf("%d packets to the frontend that is its own endpoint, want 6", n)
	}
	if n := c.counter("translated"); n < 64 {
		t.Fatalf("%d translated packets were seen", n)
	}
	if n := c.counter("classified"); n != 0 {
		t.Errorf("%d packets leave with what the rules put into them", n)
	}
	before := c.counter("kept")
	c.sendWithPriority(netip.AddrPortFrom(c.Pods[0].IPv4, 8080))
	if c.counter("kept") == before {
		t.Error("a packet to another destination loses its priority")
	}
}

// otherClasses gives packets to Services classes of queueing disciplines, as other programs
// do: UDP when it leaves, and TCP when it is forwarded. It counts those that leave with them.
const otherClasses = `table ip watch {
	counter given {}
	counter left {}
	chain middle {
		type filter hook forward priority filter
		ct state new ct status dnat meta l4proto tcp meta priority set 1:30 counter name given
	}
	chain late {
		type filter hook postrouting priority mangle
		ct state new ct status dnat meta l4proto udp iif != 0 meta priority set 1:20 counter name given
	}
	chain post {
		type filter hook postrouting priority 300
		meta l4proto tcp meta priority 1:30 counter name left
		meta l4proto udp meta priority 1:20 counter name left
	}
}
`

// 4.46: a class that another program gives a forwarded packet of IPv4 to a Service stays.
func TestPriorityOfOtherPrograms(t *testing.T) {
	c := newCluster(t, 3)
	c.nftLoad(otherClasses)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2]}
	c.apply(web)
	for _, network := range []string{"tcp", "udp"} {
		ask(t, c.Client, network, web.nodePort(c.Node, model.IPv4))
		ask(t, c.Client, network, web.loadBalancerIP(model.IPv4))
		ask(t, c.Pods[2], network, web.clusterIP(model.IPv4))
	}
	list := func(name string) string { return c.nft("list", "counter", "ip", "watch", name) }
	for _, name := range []string{"given", "left"} {
		if got := list(name); !strings.Contains(got, "packets 6 ") {
			t.Errorf("want 6 packets in %s", got)
		}
	}
}

// sendWithPriority sends a datagram from the node, from a new socket with priority 5.
func (c *cluster) sendWithPriority(to netip.AddrPort) {
	c.t.Helper()
	socket, err := c.Node.ListenPacket("udp", ":0")
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, 5) }); err != nil || refused != nil {
		c.t.Fatal(err, refused)
	}
	if _, err := socket.WriteTo([]byte("hello\n"), net.UDPAddrFromAddrPort(to)); err != nil {
		c.t.Fatal(err)
	}
}

// counter returns the packets of a counter of the watch.
func (c *cluster) counter(name string) int {
	c.t.Helper()
	listing := c.nft("list", "counter", "inet", "watch", name)
	m := regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(listing)
	if m == nil {
		c.t.Fatalf("no packets in %q", listing)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}
