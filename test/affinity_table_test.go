package test

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// differing returns how many clients have another endpoint than their counterparts.
func differing(a []*netlab.Host, inA bindings, b []*netlab.Host, inB bindings) (n int) {
	for i := range a {
		if inA[a[i]] != inB[b[i]] {
			n++
		}
	}
	return n
}

// 5.15: with session affinity and the scheduler maglev, two nodes of other histories bind 200
// clients alike, at all frontends. When an endpoint leaves, its clients move, and no others;
// they move to the same endpoint on both nodes. A node that has lost its bindings binds new
// clients as the other one does, and most of those that were bound before.
func TestAffinityByTable(t *testing.T) {
	a := newCluster(t, 5)
	b := anotherMachine(t, a)
	sticky := func(pods ...*netlab.Host) service {
		s := scheduled("maglev", pods...)
		s.Affinity, s.OnlyTCP = 600, true
		return s
	}
	a.apply(sticky(a.hosts(4, 1, 2)...)) // its slots have another order since
	a.apply(sticky(a.hosts(1, 2)...))
	ofA, ofB := sticky(a.Pods[:4]...), sticky(b.Pods[:4]...)
	a.apply(ofA)
	b.apply(ofB)
	clientsA, clientsB := a.crowd(200), b.crowd(200)
	old, late := 150, 200 // the others connect when the endpoint has left
	frontends := func(c *cluster, s service, f model.Family) []netip.AddrPort {
		return []netip.AddrPort{s.clusterIP(f), s.nodePort(c.Node, f), s.loadBalancerIP(f)}
	}
	gone := slices.Clone(ofA.Pods)[2].Name
	before := make(map[model.Family]bindings)
	for _, family := range model.Families {
		toA, toB := frontends(a, ofA, family), frontends(b, ofB, family)
		before[family] = bind(t, clientsA[:old], "tcp", toA[0])
		before[family].spread(t, ofA.Pods...)
		before[family].hold(t, "the same at the other frontends", "tcp", toA[1:]...)
		for _, to := range toB {
			if n := differing(clientsA[:old], before[family], clientsB[:old], bind(t, clientsB[:old], "tcp", to)); n > 0 {
				t.Errorf("%s: the nodes differ for %d of %d clients", to, n, old)
			}
		}
	}
	a.apply(sticky(a.hosts(0, 1, 3)...))
	b.apply(sticky(b.hosts(0, 1, 3)...))
	for _, family := range model.Families {
		inA, inB := bind(t, clientsA, "tcp", ofA.clusterIP(family)), bind(t, clientsB, "tcp", ofB.clusterIP(family))
		if n := differing(clientsA, inA, clientsB, inB); n > 0 {
			t.Errorf("%s: an endpoint has left: the nodes differ for %d of %d clients", family, n, late)
		}
		for _, client := range clientsA[:old] {
			if was := before[family][client]; was != gone && inA[client] != was {
				t.Errorf("client %s of %s moves to %s", client.Address(family), was, inA[client])
			}
		}
		before[family] = inA
	}
	b.mustRun(0, exec.Command(binary, "cleanup"))
	b.apply(sticky(b.hosts(0, 1, 3)...))
	for _, family := range model.Families {
		inB := bind(t, clientsB, "tcp", ofB.clusterIP(family))
		if n := differing(clientsA[old:], before[family], clientsB[old:], inB); n > 0 {
			t.Errorf("%s: after a restart the nodes differ for %d clients that came after the change", family, n)
		}
		if n := differing(clientsA[:old], before[family], clientsB[:old], inB); n > old/10 {
			t.Errorf("%s: after a restart the nodes differ for %d of %d clients that were bound before the change", family, n, old)
		}
	}
}
