package ecmp

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestKept: 3.55, 3.57. A node withdraws its route, and the flows that other nodes get in
// the middle go on with their endpoints: the nodes choose alike and keep the addresses of
// clients, and answers leave by the node that the request came by.
func TestKept(t *testing.T) {
	t.Parallel()
	for _, scheduler := range []string{"source-hash", "maglev"} {
		t.Run(scheduler, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.serveOn(setting{scheduler: scheduler, keep: true, answers: toSameNode})
			for _, n := range l.nodes { // as for a speaker of BGP
				n.TestScript(l.t, "ip route add blackhole 198.51.100.10/32 && ip route add blackhole 2001:db8:64::10/128")
			}
			o := l.happen(events[0])
			if o.tcp.kept < o.tcp.moved || o.udp.kept < o.udp.moved || o.tcp.moved == 0 || o.udp.moved == 0 || o.failed > 0 {
				t.Errorf("TCP connections kept: %v; UDP flows: %v; %d not opened; want all", o.tcp, o.udp, o.failed)
			}
		})
	}
}

// TestReset: 3.56, 3.57. If nodes masquerade, another node sends the packets of a
// connection to the same server from another address, which resets it: the client is not
// left waiting. A UDP flow goes on.
func TestReset(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.serveOn(setting{scheduler: "source-hash", kubernetes: true})
	o := l.happen(events[0])
	if o.tcp.reset < o.tcp.moved || o.udp.kept < o.udp.moved || o.tcp.moved == 0 || o.udp.moved == 0 || o.failed > 0 {
		t.Errorf("TCP connections kept: %v, want a reset of each; UDP flows: %v, want all; %d not opened", o.tcp, o.udp, o.failed)
	}
}

// TestLocal is 3.58: with the policy Local, nodes do not agree.
func TestLocal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.serveOn(setting{scheduler: "source-hash", kubernetes: true, local: true})
	o := l.happen(events[0])
	if fmt.Sprint(o.tcp, o.udp) != fmt.Sprintf("0 of %d, %[1]d reset 0 of %d, %[2]d get another server", o.tcp.moved, o.udp.moved) || o.tcp.moved == 0 {
		t.Errorf("TCP connections kept: %v; UDP flows: %v; want none", o.tcp, o.udp)
	}
}

// TestPage compares the rules of the page with those that the tests use.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/ecmp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range []string{fmt.Sprintf(returnRules, "02:00:00:00:00:01 : 1, 02:00:00:00:00:02 : 2, 02:00:00:00:00:03 : 3"), clamp} {
		if !strings.Contains(string(page), "\n"+rules+"```\n") {
			t.Errorf("the page does not have\n%s", rules)
		}
	}
}
