package render

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
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
		used[lane(portName(fmt.Sprintf("service-%d", i)), 3)]++
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
		if got := lane(portName(fmt.Sprint(i)), 1); got != "rr-1-0" {
			t.Fatalf("lane for one endpoint: %s", got)
		}
	}
}

// TestNodesStartDifferently counts which endpoint has the first slot on each
// of many nodes.
func TestNodesStartDifferently(t *testing.T) {
	endpoints := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80"),
	}
	first := make(map[netip.AddrPort]int)
	for i := range 3000 {
		order := slots(fmt.Sprintf("node-%d", i), portName("web"), endpoints)
		first[order[0]]++
		sorted := slices.Clone(order)
		slices.SortFunc(sorted, netip.AddrPort.Compare)
		if !slices.Equal(sorted, endpoints) {
			t.Fatalf("slots of node %d are not the endpoints: %v", i, order)
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
	if got := lane(portName("web"), 3); got != "rr-3-4" {
		t.Errorf("lane of default/web:http is %s", got)
	}
	if hash("ab", "c") == hash("a", "bc") {
		t.Error("parts run into each other")
	}
}
