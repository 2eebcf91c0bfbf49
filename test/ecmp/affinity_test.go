package ecmp

import (
	"fmt"
	"slices"
	"testing"
)

// bound counts clients, for each protocol and family, whose connections pass both nodes.
type bound struct{ clients, alike int }

// String says how many of the clients have one endpoint.
func (b bound) String() string { return fmt.Sprintf("%d of %d", b.alike, b.clients) }

// affinity has two nodes of other histories serve a Service with session affinity, and
// returns how many clients have one endpoint on both: at first, and after one node has lost
// all that it knew.
func (l *lab) affinity(scheduler string) (before, after bound) {
	l.t.Helper()
	s := setting{scheduler: scheduler, kubernetes: true, affinity: true}
	l.applyTo(l.nodes[0], s)
	// An endpoint that is added gets the slot that is free: node 2 has another order than
	// node 1.
	for _, on := range [][]int{{3}, {3, 2}, {3, 2, 1}} {
		s.endpoints = on
		l.applyTo(l.nodes[1], s)
	}
	s.endpoints = nil
	l.serveOn(s)
	for _, r := range l.routers {
		l.announce(r, "mpath", two...)
	}
	servers := make(map[string][]string)
	before = l.bind(servers)
	if _, err := l.nodes[1].Output(binary, "cleanup"); err != nil {
		l.t.Fatal(err)
	}
	l.applyTo(l.nodes[1], s)
	return before, l.bind(servers)
}

// rounds is how often bind opens flows. A client has six TCP connections and three UDP
// sockets then.
const rounds = 3

// bind opens flows, and adds the servers that answer to those of each client.
func (l *lab) bind(servers map[string][]string) (b bound) {
	l.t.Helper()
	l.watch()
	var flows []*flow
	for range rounds {
		opened, failed := l.openFlows()
		if failed > 0 { // on a busy machine; a node that answers no flow leaves few clients to judge
			fmt.Fprintf(l.t.Output(), "%d flows not opened\n", failed)
		}
		flows = append(flows, opened...)
	}
	passed := make(map[string][]string)
	paths := l.paths()
	for _, f := range flows {
		client := f.network + " " + f.from.Addr().String()
		passed[client] = append(passed[client], paths[f.key()]...)
		servers[client] = append(servers[client], f.server)
	}
	for client, nodes := range passed {
		if len(distinct(nodes)) < 2 {
			continue
		}
		b.clients++
		if found := distinct(servers[client]); len(found) == 1 {
			b.alike++
		} else {
			fmt.Fprintf(l.t.Output(), "%s, by %v, reaches %v\n", client, distinct(nodes), found)
		}
	}
	return b
}

// distinct returns each string once, in order.
func distinct(of []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(of)))
}

// TestAffinity is 5.15: connections of a client that routers spread over two nodes of other
// histories reach one endpoint with maglev, also after a node has restarted. With the default
// scheduler each node binds the client to an endpoint of its own.
func TestAffinity(t *testing.T) {
	t.Parallel()
	for _, c := range affinities {
		t.Run(c.scheduler, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

// affine is a scheduler, and whether nodes agree with it.
type affine struct {
	scheduler string
	agree     bool
}

var affinities = []affine{{"maglev", true}, {"source-hash", true}, {"round-robin", false}}

// check returns how many clients have one endpoint, before and after a restart.
func (c affine) check(t testing.TB) (before, after bound) {
	t.Helper()
	before, after = newLab(t).affinity(c.scheduler)
	fmt.Fprintf(t.Output(), "%s: clients with one endpoint: %v, after a restart %v\n", c.scheduler, before, after)
	for _, b := range []bound{before, after} {
		// Of 40. One in four clients of UDP passes only one of two nodes, and one in 32 of TCP.
		if b.clients < clients*2 || b.alike == b.clients != c.agree {
			t.Errorf("%s: %v clients whose connections pass both nodes have one endpoint", c.scheduler, b)
		}
	}
	return before, after
}
