//go:build guest

package test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// shortSegment is the size of segments that a rule sets.
const shortSegment = 900

// 9.29, 9.30: datagrams are answered for two seconds before they take the fast path, and handshakes do not take
// it, so that a rule limits the size of segments. Connections that nftproxy has not translated stay with
// the rules.
func TestFastPathFirstPackets(t *testing.T) {
	c := fastCluster(t, 1, "all")
	c.nftLoad(fmt.Sprintf("table inet short { chain forward { type filter hook forward priority mangle; tcp flags syn tcp option maxseg size set %d; }; }", shortSegment))
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	c.startServing(web)
	for _, family := range model.Families {
		before := c.packets(t)
		began := time.Now()
		c.dialFast(t, "udp", web.clusterIP(family))
		const alone = 2*time.Second - 20*time.Millisecond // the kernel counts in ticks
		if took := time.Since(began); took < alone {
			t.Errorf("udp %s: on the fast path after %s, want %s at least", family, took, alone)
		}
		if n := c.packets(t) - before; n < 4 {
			t.Errorf("udp %s: only %d packets passed the hook forward", family, n)
		}
		before = c.packets(t)
		s := c.dialFast(t, "tcp", web.clusterIP(family))
		if n := c.packets(t) - before; n < 3 {
			t.Errorf("tcp %s: only %d packets of the handshake passed the hook forward", family, n)
		}
		if mss := s.segment(); mss > shortSegment {
			t.Errorf("tcp %s: segments have %d bytes, want %d at most", family, mss, shortSegment)
		}
	}
	direct := openFlowsFor(t, c.Client, func(f model.Family) netip.AddrPort { return endpointOf(c.Pods[0], f) }, answerTime)
	c.openFastFrom(t, c.Client, web.clusterIP) // later: the others could have taken it
	for _, f := range direct {
		c.isSlow(t, f)
	}
}

// 9.31: connections to frontends that are not in the set of single ones, that have a list of
// clients, or whose packets are logged, and those of SCTP stay with the rules.
func TestFastPathStays(t *testing.T) {
	c := fastCluster(t, 1, "all")
	c.flags = append(c.flags, "--observe=refusals", "--nodeport-addresses=all")
	web := service{Name: "web", N: 1, Pods: c.Pods}
	ranged := service{Name: "ranged", N: 2, Pods: c.Pods, Annotations: ports("8000-8999"), Dialled: echoPort}
	observed := service{Name: "observed", N: 3, Pods: c.Pods, Annotations: map[string]string{"nftproxy.dev/observe": "connections"}}
	limited := service{Name: "limited", N: 4, Pods: c.Pods, Annotations: listed(clientRanges, nil)} // a list of all addresses is none
	c.write(web, ranged, observed, limited)
	c.startServing(web)
	var stay []flow
	for _, s := range []service{ranged, observed, limited} {
		stay = append(stay, openFlowsFor(t, c.Client, s.clusterIP, answerTime)...)
	}
	stay = append(stay, openFlowsFor(t, c.Client, func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) }, answerTime)...)
	if c.echoSCTP(1) > 0 {
		t.Fatal("this kernel has no sockets of SCTP")
	}
	for _, family := range model.Families {
		opened, err := c.Client.OpenSCTP(web.clusterIP(family), answerTime)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { opened.Close() })
		stay = append(stay, flow{opened, "sctp", family, c.Pods[0].Name})
	}
	c.openFastFrom(t, c.Client, web.clusterIP) // later: the others could have taken it
	for _, f := range stay {
		c.isSlow(t, f)
	}
}

// 9.30: connections with an end in the network namespace of the node stay with the rules. "conntrack -L" marks those in
// the flow table, and the table has the frontends and devices.
func TestFastPathListed(t *testing.T) {
	c := fastCluster(t, 1, "all")
	c.echo(c.Node)
	web, local := service{Name: "web", N: 1, Pods: c.Pods}, service{Name: "local", N: 2, Pods: []*netlab.Host{c.Node}}
	c.write(web, local)
	c.startServing(web)
	stay := openFlowsFor(t, c.Node, web.clusterIP, answerTime)
	for _, from := range []*netlab.Host{c.Client, c.Pods[0], c.Node} {
		stay = append(stay, openFlowsFor(t, from, local.clusterIP, answerTime)...)
	}
	fast := c.openFastFrom(t, c.Client, web.clusterIP) // later: the others could have taken it
	for _, f := range stay {
		for range 10 {
			f.goesOn(t, "it stays with the rules")
		}
		if c.isMarked(f) {
			t.Errorf("%s %s from %s to %s: in the flow table", f.network, f.family, f.Client(), f.peer)
		}
	}
	for _, f := range fast {
		eventually(t, func() error {
			f.goesOn(t, "it is listed") // when it is idle, it is not in the flow table
			if !c.isMarked(f) {
				return fmt.Errorf("%s %s: conntrack -L does not mark it with [OFFLOAD]", f.network, f.family)
			}
			return nil
		})
	}
	list := c.nft("list", "table", "inet", "nftproxy-fast-path")
	for _, part := range []string{"flow add @flows", "10.96.0.1 . tcp . 80", "fd00:10:96::2 . udp . 80", "devices = ", "pod-0", "uplink"} {
		if !strings.Contains(list, part) {
			t.Errorf("the table has no %q:\n%s", part, list)
		}
	}
}

// isMarked reports whether the entry of a flow in connection tracking has the mark of flow tables.
func (c *cluster) isMarked(f flow) bool {
	c.t.Helper()
	return strings.Contains(c.entry(f), "[OFFLOAD]")
}

// entry returns the entry of a flow in connection tracking.
func (c *cluster) entry(f flow) string {
	c.t.Helper()
	list := c.mustRun(0, exec.Command("conntrack", "-L", "-f", strings.ToLower(f.family.String()), "-p", f.network, "--orig-port-src", fmt.Sprint(f.Client().Port())))
	for line := range strings.Lines(list) {
		if strings.Contains(line, fmt.Sprintf(" src=%s ", f.Client().Addr())) {
			return line
		}
	}
	c.t.Fatalf("%s %s: no entry in connection tracking:\n%s", f.network, f.family, list)
	return ""
}

// segment returns how many bytes the client sends in a segment at most.
func (s *shaped) segment() (bytes int) {
	s.t.Helper()
	s.control(func(fd int) (err error) {
		bytes, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		return err
	})
	return bytes
}
