package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
)

// TestFill: a router that gets its Services in parts says in the end what a fresh one says. The
// changes of the parts lead there, one after the other, and so do those that are returned.
func TestFill(t *testing.T) {
	again := 0 // frontends that a later part changed
	for seed := range uint64(300) {
		town := newTown(seed)
		for range 20 {
			town.service()
		}
		r := NewRouter()
		r.Configure(town.config, town.nodes, town.cidrs)
		carried, before := make(map[Frontend]Route), 0
		all := r.Fill(town.states, 1+town.IntN(8), func(part []RouteChange) bool {
			for _, c := range part {
				old, ok := carried[c.Frontend]
				if ok != (c.Old != nil) || ok && !reflect.DeepEqual(old, *c.Old) {
					t.Fatalf("seed %d: %s was %+v before, the change says %+v", seed, c.Frontend, old, c.Old)
				}
				if delete(carried, c.Frontend); c.New != nil {
					carried[c.Frontend] = *c.New
				}
				if ok {
					again++
				}
			}
			before = len(carried)
			return true
		})
		want := town.resolve()
		if got := r.Routing(); !reflect.DeepEqual(want, got) {
			t.Fatalf("seed %d: the router says\n%+v\na fresh one\n%+v", seed, got, want)
		}
		checkNames(t, r, town.states)
		after := byFrontend(want)
		if !reflect.DeepEqual(carried, after) {
			t.Fatalf("seed %d: the parts lead to\n%v\nwant\n%v", seed, carried, after)
		}
		if len(all) != before {
			t.Fatalf("seed %d: %d changes, want %d", seed, len(all), before)
		}
		for _, c := range all {
			if c.Old != nil || !reflect.DeepEqual(*c.New, after[c.Frontend]) {
				t.Fatalf("seed %d: %s is %+v, want %+v", seed, c.Frontend, c.New, after[c.Frontend])
			}
		}
	}
	if again < 100 {
		t.Errorf("later parts changed only %d frontends", again)
	}
}

// TestFillStops: a router gets all Services, even if the rest of the parts is not wanted.
func TestFillStops(t *testing.T) {
	r, states, parts := NewRouter(), make(map[ServiceName]ServiceState), 0
	for i := range 5 {
		s := &Service{
			Name: ServiceName{"default", fmt.Sprint(i)}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})},
			Ports: []ServicePort{{Protocol: TCP, Port: 80}},
		}
		states[s.Name] = ServiceState{Service: s}
	}
	all := r.Fill(states, 1, func([]RouteChange) bool { parts++; return parts < 2 })
	if services, frontends := r.Len(); parts != 2 || services != 5 || frontends != 5 || len(all) != 5 {
		t.Errorf("after %d parts %d services, %d frontends, %d changes", parts, services, frontends, len(all))
	}
}
