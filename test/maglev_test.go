package test

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// applyAs applies services on a node of another name.
func (c *cluster) applyAs(node string, services ...service) {
	c.t.Helper()
	c.write(services...)
	cmd := c.command("apply")
	cmd.Args[slices.Index(cmd.Args, nodeName)] = node
	c.mustRun(0, cmd)
}

// hosts returns the pods of some numbers.
func (c *cluster) hosts(numbers ...int) []*netlab.Host {
	var out []*netlab.Host
	for _, i := range numbers {
		out = append(out, c.Pods[i])
	}
	return out
}

// anotherMachine returns a second cluster with the same addresses.
func anotherMachine(t *testing.T, c *cluster) *cluster {
	t.Helper()
	b := &cluster{netlab.TestLab(t, len(c.Pods)), t, c.file + "-b", clusterCIDR}
	b.echo(b.Pods...)
	return b
}

// 3.45: two machines with other names and after other changes send each client to the
// same endpoint. If an endpoint leaves, its clients move, and few others; if it returns,
// all are where they were. Addresses are fixed, so the test never differs.
func TestMaglev(t *testing.T) {
	a := newCluster(t, 6)
	b := anotherMachine(t, a)
	for _, pods := range [][]int{{0, 1, 2, 3}, {4, 1, 2, 3}, {4, 1, 2}} {
		a.apply(scheduled("maglev", a.hosts(pods...)...))
	}
	ofA, ofB := scheduled("maglev", a.Pods[1:]...), scheduled("maglev", b.Pods[1:]...)
	slices.Reverse(ofB.Pods)
	a.apply(ofA)
	b.applyAs("another-node", ofB)
	clientsA, clientsB := a.crowd(100), b.crowd(100)
	before := make(map[string]bindings)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		inA, inB := bind(t, clientsA, network, ofA.clusterIP(family)), bind(t, clientsB, network, ofB.clusterIP(family))
		inA.spread(t, ofA.Pods...)
		for i := range clientsA {
			if got, want := inB[clientsB[i]], inA[clientsA[i]]; got != want {
				t.Errorf("client %s: machine b chooses %s, machine a %s", clientsA[i].Address(family), got, want)
			}
		}
		inA.hold(t, "the same on an external IP", network, ofA.externalIP(family))
		before[network+family.String()] = inA
	})
	gone := ofA.Pods[2]
	a.apply(scheduled("maglev", slices.DeleteFunc(slices.Clone(ofA.Pods), func(h *netlab.Host) bool { return h == gone })...))
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		was, moved := before[network+family.String()], 0
		for client, name := range bind(t, clientsA, network, ofA.clusterIP(family)) {
			if name == gone.Name {
				t.Errorf("client %s is still on %s", client.Address(family), name)
			}
			if was[client] != gone.Name && was[client] != name {
				moved++
			}
		}
		if moved > 10 {
			t.Errorf("%d of 100 clients of other endpoints move", moved)
		}
	})
	a.apply(ofA)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		before[network+family.String()].hold(t, "its endpoint returned", network, ofA.clusterIP(family))
	})
}

// 3.49: the connections of one client are spread by their port, on two machines alike.
// Ports of one family are not free for the other one.
func TestMaglevPort(t *testing.T) {
	a := newCluster(t, 4)
	b := anotherMachine(t, a)
	ofA, ofB := scheduled("maglev-port", a.Pods...), scheduled("maglev-port", b.Pods...)
	a.apply(ofA)
	b.applyAs("another-node", ofB)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		var got []string
		first := uint16(20000)
		if family == model.IPv6 {
			first = 21000
		}
		for port := first; port < first+80; port++ {
			inA := ask(t, a.Client.At(port), network, ofA.clusterIP(family)).Name
			if inB := ask(t, b.Client.At(port), network, ofB.clusterIP(family)).Name; inB != inA {
				t.Errorf("port %d: machine b chooses %s, machine a %s", port, inB, inA)
			}
			got = append(got, inA)
		}
		if x := chiSquare(count(got), len(a.Pods), len(got)); x > 30.7 { // see TestRandom
			t.Errorf("chi-square of %v is %.1f", count(got), x)
		}
	})
}

// 3.46, 3.50: shares follow weights, those of Cilium's annotation, too. Endpoints of weight
// 0 get nothing.
func TestMaglevWeights(t *testing.T) {
	c := newCluster(t, 3)
	clients := c.crowd(120)
	s := scheduled("maglev", c.Pods...)
	s.Weights = map[*netlab.Host]int{c.Pods[0]: 3, c.Pods[1]: 1, c.Pods[2]: 0}
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		b := bind(t, clients, network, s.clusterIP(family))
		if n := len(b.of("pod-0")); n < 75 || n > 105 || n+len(b.of("pod-1")) != len(clients) {
			t.Errorf("pod-0 has %d of %d clients, want about 90, and pod-1 the others: it has %d", n, len(clients), len(b.of("pod-1")))
		}
	})
}

// 3.48: with policy Local, clients outside have a table of the endpoints on this node.
func TestMaglevLocal(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	clients := c.crowd(48)
	s := scheduled("maglev", c.Pods[0], c.Pods[1], c.Remote[0])
	s.External = "Local"
	c.apply(s)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		outside := bind(t, clients, network, s.externalIP(family))
		outside.spread(t, c.Pods...)
		if n := len(outside.of(c.Remote[0].Name)); n > 0 {
			t.Errorf("%d clients are on %s", n, c.Remote[0].Name)
		}
		outside.hold(t, "same client", network, s.externalIP(family))
		bind(t, clients, network, s.clusterIP(family)).spread(t, s.Pods...)
	})
}
