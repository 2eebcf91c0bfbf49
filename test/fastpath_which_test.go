//go:build guest

package test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
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
// clients, or whose packets are logged, stay with the rules.
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
	c.openFastFrom(t, c.Client, web.clusterIP) // later: the others could have taken it
	for _, f := range stay {
		c.isSlow(t, f)
	}
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
