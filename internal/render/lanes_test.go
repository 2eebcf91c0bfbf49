package render

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

func portName(name string) model.PortName {
	return model.PortName{Service: model.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: model.TCP}
}

// TestLanesAreEven spreads services over the counters: none is used twice as
// much as it should be, and none half as much.
func TestLanesAreEven(t *testing.T) {
	const services = 16000
	used := make(map[string]int)
	for i := range services {
		used[laneFor(portName(fmt.Sprintf("service-%d", i)), model.RoundRobin, placement.Span{First: 0, Count: 3}).chainName()]++
	}
	if len(used) != counters {
		t.Errorf("%d lanes in use, want %d", len(used), counters)
	}
	for name, n := range used {
		if n < services/counters/2 || n > services/counters*2 {
			t.Errorf("lane %s serves %d of %d services", name, n, services)
		}
	}
}

func TestOneEndpointNeedsOneLane(t *testing.T) {
	for i := range 100 {
		if got := laneFor(portName(fmt.Sprint(i)), model.SourceHash, placement.Span{First: 0, Count: 1}).chainName(); got != "rr-1-0" {
			t.Fatalf("lane for one endpoint: %s", got)
		}
	}
}

// TestAffinityMapHasOneLookup: a new lane must not refer to the map of clients, because
// the kernel then walks all of them.
func TestAffinityMapHasOneLookup(t *testing.T) {
	for _, bindings := range nft.AffinityMaps {
		for count := range 20 {
			u := laneUse{lane: laneFor(portName("web"), model.RoundRobin, placement.Span{First: 0, Count: count + 1}), bindings: bindings}
			if u.lane.shape = nft.Shapes[count%2]; bindings == nft.SharedAffinityMap {
				u.lane.shape = nft.OfPort // a Balance has no NodePort
			}
			if !nft.IsLane(u.laneChain(model.Observe{}).Rules) || !nft.IsLane((laneUse{lane: u.lane}).laneChain(model.Observe{}).Rules) {
				t.Errorf("%s and %s are not recognised as lanes", u.chainName(), laneUse{lane: u.lane}.chainName())
			}
			for _, r := range u.laneChain(model.Observe{}).Rules {
				if d, ok := r[len(r)-1].(nft.DNAT); ok {
					t.Errorf("%s looks clients up in %s by itself", u.chainName(), d.Map)
				}
			}
		}
	}
	for _, a := range []nft.Affinity{{Shape: nft.OfNode}, {Shape: nft.OfNode, Local: true}, {Shared: true}} {
		a.Timeout, a.Protocol = time.Hour, model.UDP
		u := laneUse{binds: a}
		if !nft.IsLane(u.laneChain(model.Observe{}).Rules) {
			t.Errorf("%s is not recognised as a chain that frontends share", u.chainName())
		}
	}
	chains := affinityChains(&model.Routing{Wildcards: true}, nft.AffinityMaps)
	lookups := make(map[string]int)
	for _, c := range chains {
		if nft.IsLane(c.Rules) {
			t.Errorf("%s is taken for a lane", c.Name)
		}
		for _, r := range c.Rules {
			if d, ok := r[len(r)-1].(nft.DNAT); ok {
				lookups[d.Map]++
			}
		}
	}
	// One for frontends with an address of their own, one for NodePorts on several, which no Balance has.
	if want := map[string]int{nft.AffinityMap: 2, nft.LocalAffinityMap: 2, nft.ServersMap: 1}; !maps.Equal(lookups, want) {
		t.Errorf("rules that look up clients: %v, want %v", lookups, want)
	}
}

// TestNodesStartDifferently counts which endpoint has the first slot on each
// of many nodes.
func TestNodesStartDifferently(t *testing.T) {
	var endpoints []model.Endpoint
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		endpoints = append(endpoints, model.Endpoint{Host: &model.Host{Address: netip.MustParseAddr(a)}, Port: 80})
	}
	first := make(map[netip.AddrPort]int)
	for i := range 3000 {
		l := placement.New(fmt.Sprintf("node-%d", i), portName("web"), model.RoundRobin, endpoints, nil)
		first[l.Slots[0]]++
		sorted := slices.Clone(l.Slots)
		slices.SortFunc(sorted, netip.AddrPort.Compare)
		for j, e := range endpoints {
			if sorted[j] != e.Address() {
				t.Fatalf("slots of node %d are not the endpoints: %v", i, l.Slots)
			}
		}
	}
	for e, n := range first {
		if n < 800 || n > 1200 {
			t.Errorf("endpoint %s comes first on %d of 3000 nodes", e, n)
		}
	}
}

// TestHashIsStable pins values: they decide where services and endpoints are
// in the rulesets of nodes that run today.
func TestHashIsStable(t *testing.T) {
	if got := laneFor(portName("web"), model.RoundRobin, placement.Span{First: 0, Count: 3}).chainName(); got != "rr-3-4" {
		t.Errorf("lane of default/web:http is %s", got)
	}
	if placement.NewHash("ab", "c") == placement.NewHash("a", "bc") {
		t.Error("parts run into each other")
	}
}
