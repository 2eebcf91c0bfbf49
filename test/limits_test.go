package test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// drops returns what a kind of limit has dropped of connections to a frontend.
func (c *cluster) drops(t *testing.T, kind model.LimitKind, network string, to netip.AddrPort) (n uint64, found bool) {
	t.Helper()
	frontend := model.Frontend{Address: to.Addr(), Protocol: map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP}[network], Port: to.Port()}
	err := c.Node.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		all, err := counters.Reader{Conn: conn}.LimitDrops()
		for _, d := range all {
			if d.Kind == kind && (d.Frontend == frontend.ID() || d.Frontend == frontend.OnNode().ID()) {
				n, found = d.Packets, true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, found
}

// wantDrops compares the counter of a limit with what the test saw. A client that stops after a second, not
// sooner, has sent its packet twice.
func (c *cluster) wantDrops(t *testing.T, kind model.LimitKind, network string, to netip.AddrPort, want uint64) {
	t.Helper()
	n, found := c.drops(t, kind, network, to)
	most := want
	if network == "tcp" {
		for _, h := range append(slices.Clone(c.Pods), c.Client, c.Node) {
			most += sentAgain(t, h)
		}
	}
	if n < want || n > most || !found {
		t.Errorf("%s %s: limit of %s has dropped %d (counted: %t), want %d or, with what clients have sent again, up to %d", network, to, kind, n, found, want, most)
	}
}

// sentAgain returns how often a host has sent the first packet of a connection again.
func sentAgain(t *testing.T, h *netlab.Host) uint64 {
	t.Helper()
	var counters []byte
	if err := h.Do(func() (err error) { counters, err = os.ReadFile("/proc/thread-self/net/netstat"); return err }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(counters)) {
		values := strings.Fields(line)
		if i := slices.Index(names, "TCPSynRetrans"); i > 0 {
			n, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		names = values
	}
	t.Fatalf("no number of packets in\n%s", counters)
	return 0
}

// open opens a flow and has it answered.
func open(t *testing.T, from *netlab.Host, network string, to netip.AddrPort) *netlab.Flow {
	t.Helper()
	f, err := from.Open(network, to, 0)
	if err != nil {
		t.Fatalf("from %s to %s %s: %v", from.Name, network, to, err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Ask(); err != nil {
		t.Fatalf("from %s to %s %s: %v", from.Name, network, to, err)
	}
	return f
}

// end ends a flow. Without a protocol for that, the node forgets its entry.
func (c *cluster) end(t *testing.T, f *netlab.Flow, network string, to netip.AddrPort) {
	t.Helper()
	f.Close()
	if network == "tcp" {
		return
	}
	filter := &netlink.ConntrackFilter{}
	if err := filter.AddProtocol(syscall.IPPROTO_UDP); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		filter.AddIP(netlink.ConntrackOrigDstIP, to.Addr().AsSlice()), filter.AddPort(netlink.ConntrackOrigDstPort, to.Port()),
		filter.AddIP(netlink.ConntrackOrigSrcIP, f.Client().Addr().AsSlice()), filter.AddPort(netlink.ConntrackOrigSrcPort, f.Client().Port()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	err := c.Node.Do(func() error {
		family := map[bool]netlink.InetFamily{true: syscall.AF_INET, false: syscall.AF_INET6}[to.Addr().Is4()]
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d entries of the flow", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// limited returns a service with annotations for limits.
func limited(name string, n int, pods []*netlab.Host, limits map[string]string) service {
	s := service{Name: name, N: n, Pods: pods, Annotations: make(map[string]string)}
	for k, v := range limits {
		s.Annotations["nftproxy.dev/"+k] = v
	}
	return s
}

// forEachLimited runs a test for each frontend of a service, with all protocols and
// families beside each other.
func forEachLimited(t *testing.T, c *cluster, s service, f func(t *testing.T, network string, to netip.AddrPort)) {
	t.Helper()
	forEachFlowParallel(t, func(t *testing.T, network string, family model.Family) {
		var wg sync.WaitGroup
		for kind, to := range s.frontends(c.Node, family) {
			wg.Go(func() { t.Run(kind, func(t *testing.T) { f(t, network, to) }) })
		}
		wg.Wait()
	})
}

// Limits at frontends of every kind, and NodePorts on all addresses of the node.
func TestLimits(t *testing.T) {
	c := newCluster(t, 2)
	c.flags = allAddresses
	pods, clients := c.Pods[:1], []*netlab.Host{c.Client, c.Node, c.Pods[1]}
	connections := limited("connections", 1, pods, map[string]string{"max-connections": "3"})
	rate := limited("rate", 2, pods, map[string]string{"connection-rate": "1/hour burst 4"})
	refilled := limited("refilled", 3, pods, map[string]string{"connection-rate": "20/second burst 1"})
	clientRate := limited("client-rate", 4, pods, map[string]string{"connection-rate-per-client": "1/hour burst 2"})
	same := limited("same", 5, pods, map[string]string{"connection-rate-per-client": "1/hour burst 2"})
	clientConnections := limited("client-connections", 6, pods, map[string]string{"max-connections-per-client": "2"})
	c.apply(connections, rate, refilled, clientRate, same, clientConnections)
	var wg sync.WaitGroup
	run := func(s service, f func(t *testing.T, network string, to netip.AddrPort)) {
		wg.Go(func() { t.Run(s.Name, func(t *testing.T) { forEachLimited(t, c, s, f) }) })
	}
	// 4.85, 4.89, 4.91: as many concurrent connections as allowed, from all clients
	// together. One more gets no answer, until another one ends.
	run(connections, func(t *testing.T, network string, to netip.AddrPort) {
		var flows []*netlab.Flow
		for _, from := range clients {
			flows = append(flows, open(t, from, network, to))
		}
		silent(t, clients, network, to)
		c.wantDrops(t, model.LimitConnections, network, to, 3)
		if _, err := flows[0].Ask(); err != nil {
			t.Errorf("a connection within the limit: %v", err)
		}
		c.end(t, flows[0], network, to)
		eventually(t, func() error { _, err := c.Client.Ask(network, to, silence); return err })
	})
	// 4.86, 4.89: as many new connections as may come together, and no more before the
	// rate adds one.
	run(rate, func(t *testing.T, network string, to netip.AddrPort) {
		for _, from := range append(clients, c.Client) {
			ask(t, from, network, to)
		}
		silent(t, []*netlab.Host{c.Client, c.Node}, network, to)
		c.wantDrops(t, model.LimitRate, network, to, 2)
	})
	run(refilled, func(t *testing.T, network string, to netip.AddrPort) {
		for range 3 {
			eventually(t, func() error { _, err := c.Client.Ask(network, to, silence); return err })
		}
	})
	// 4.87, 4.88: one client at its limit does not affect others, nor other frontends.
	for _, s := range []service{clientRate, same} {
		run(s, func(t *testing.T, network string, to netip.AddrPort) {
			ask(t, c.Client, network, to)
			ask(t, c.Client, network, to)
			silent(t, []*netlab.Host{c.Client}, network, to)
			c.wantDrops(t, model.LimitClientRate, network, to, 1)
			ask(t, c.Node, network, to)
			ask(t, c.Pods[1], network, to)
		})
	}
	run(clientConnections, func(t *testing.T, network string, to netip.AddrPort) {
		first := open(t, c.Client, network, to)
		open(t, c.Client, network, to)
		silent(t, []*netlab.Host{c.Client}, network, to)
		c.wantDrops(t, model.LimitClientConnections, network, to, 1)
		open(t, c.Node, network, to)
		open(t, c.Pods[1], network, to)
		c.end(t, first, network, to)
		eventually(t, func() error { _, err := c.Client.Ask(network, to, silence); return err })
	})
	wg.Wait()
}

// 4.90: another endpoint, another Service and a restart leave what was counted. Without
// limits all clients are served.
func TestLimitsStay(t *testing.T) {
	c := newCluster(t, 2)
	web := limited("web", 1, c.Pods[:1], map[string]string{"connection-rate": "1/hour burst 2", "connection-rate-per-client": "1/hour burst 2", "max-connections": "100"})
	c.apply(web)
	forEachFrontend := func(f func(network string, to netip.AddrPort)) {
		for _, family := range model.Families {
			for _, network := range []string{"tcp", "udp"} {
				for _, to := range web.frontends(c.Node, family) {
					f(network, to)
				}
			}
		}
	}
	forEachFrontend(func(network string, to netip.AddrPort) { ask(t, c.Client, network, to) })
	web.Pods = c.Pods[1:]
	c.apply(web, limited("other", 2, c.Pods, map[string]string{"connection-rate": "7/minute", "max-connections-per-client": "100"}))
	forEachFrontend(func(network string, to netip.AddrPort) { ask(t, c.Client, network, to) })
	c.apply(web)
	var all []netip.AddrPort
	for _, family := range model.Families {
		for _, to := range web.frontends(c.Node, family) {
			all = append(all, to)
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		silent(t, []*netlab.Host{c.Client}, network, all...)
	}
	forEachFrontend(func(network string, to netip.AddrPort) { c.wantDrops(t, model.LimitClientRate, network, to, 1) })
	web.Annotations = nil
	c.apply(web)
	forEachFrontend(func(network string, to netip.AddrPort) { ask(t, c.Client, network, to) })
}
