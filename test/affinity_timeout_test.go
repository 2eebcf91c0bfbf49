package test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// short is a timeout in seconds that tests wait for.
const short = 2

// bindingsOfFlow holds the bindings of the clients of one protocol and family.
type bindingsOfFlow struct {
	bindings
	network string
	family  model.Family
}

// bindAll lets every client dial once over each protocol and family.
func bindAll(t *testing.T, clients []*netlab.Host, s service) []bindingsOfFlow {
	t.Helper()
	var all []bindingsOfFlow
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			b := bind(t, clients, network, s.clusterIP(family))
			b.spread(t, s.Pods...)
			all = append(all, bindingsOfFlow{b, network, family})
		}
	}
	return all
}

// bound returns the addresses of those among the clients that the kernel
// remembers.
func (c *cluster) bound(clients []*netlab.Host) []netip.Addr {
	c.t.Helper()
	isSeparator := func(r rune) bool { return strings.ContainsRune(" \t\n,{", r) }
	var all []netip.Addr
	for _, family := range model.Families {
		// Not the map of connections, which has clients that are not bound.
		listing := c.nft("list", "map", nft.FamilyKeyword(family), nft.TableName, nft.AffinityMap)
		words := strings.FieldsFunc(listing, isSeparator)
		for _, client := range clients {
			if a := client.Address(family); slices.Contains(words, a.String()) {
				all = append(all, a)
			}
		}
	}
	return all
}

// wantMoves checks that some clients of one endpoint have moved.
func wantMoves(t *testing.T, before []bindingsOfFlow, s service) {
	t.Helper()
	for _, b := range before {
		clients := b.of(s.Pods[0].Name)
		after := bind(t, clients, b.network, s.clusterIP(b.family))
		if len(after.of(s.Pods[0].Name)) == len(clients) {
			t.Errorf("%s %s: all %d clients are on %s still", b.network, b.family, len(clients), s.Pods[0].Name)
		}
	}
}

// keepDialling lets clients dial for longer than the timeout, and checks that
// they stay. If the machine pauses for too long, they start again. Their bindings are of
// the time last or later.
func keepDialling(t *testing.T, last time.Time, all []bindingsOfFlow, s service) {
	t.Helper()
	for start := time.Now(); time.Since(start) < short*time.Second*3/2; {
		round := time.Now()
		for i, b := range all {
			to := s.clusterIP(b.family)
			moves := b.moves(t, b.network, to)
			if pause := time.Since(last); pause > short*time.Second/2 {
				fmt.Fprintf(t.Output(), "%s %s: clients paused for %v\n", b.network, b.family, pause)
				all[i].bindings = bind(t, slices.Collect(maps.Keys(b.bindings)), b.network, to)
			} else if len(moves) > 0 {
				t.Fatalf("%s %s: %v", b.network, b.family, moves)
			}
		}
		last = round
	}
}

// 5.3: each new connection restarts the timeout; a connection that is merely
// open does not.
func TestAffinityTimeout(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: short}
	c.apply(web)
	var all []bindingsOfFlow
	var begun time.Time
	eventually(t, func() error { // the first bindings may end before the last ones are made
		begun = time.Now()
		all = bindAll(t, clients, web)
		if got, want := len(c.bound(clients)), 2*len(clients); got != want {
			return fmt.Errorf("the kernel remembers %d addresses, want %d", got, want)
		}
		return nil
	})
	keepDialling(t, begun, all, web)
	open := openFlows(t, clients[0], web.clusterIP)
	eventually(t, func() error {
		for _, f := range open {
			f.goesOn(t, "the binding ends")
		}
		if left := c.bound(clients); len(left) > 0 {
			return fmt.Errorf("%v are still bound", left)
		}
		return nil
	})
	wantMoves(t, all, web)
}

// 5.9: a changed timeout applies from the next connection on.
func TestAffinityTimeoutChanges(t *testing.T) {
	c := newCluster(t, 2)
	clients := c.crowd(8)
	web := service{Name: "web", N: 1, Pods: c.Pods, Affinity: long}
	c.apply(web)
	all := bindAll(t, clients, web)
	web.Affinity = short
	c.apply(web)
	for _, b := range all {
		b.hold(t, "the time-out is another", b.network, web.clusterIP(b.family))
	}
	eventually(t, func() error {
		if left := c.bound(clients); len(left) > 0 {
			return fmt.Errorf("%v are still bound", left)
		}
		return nil
	})
	wantMoves(t, all, web)
}
