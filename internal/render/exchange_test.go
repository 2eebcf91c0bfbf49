package render

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// TestExchangePositions: without the endpoints that go, and with those that come at their positions,
// the order before is the one after.
func TestExchangePositions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		n := 1 + r.IntN(100)
		numbers := r.Perm(1000)
		old, now := hostsAt(80, numbers[:n]...), hostsAt(80, numbers[r.IntN(n+1):][:n]...)
		for _, all := range [][]model.Endpoint{old, now} {
			slices.SortFunc(all, func(a, b model.Endpoint) int { return a.Host.Address.Compare(b.Host.Address) })
		}
		x := newExchange("a", portName("web"), old, now)
		if x == nil {
			t.Fatalf("%d endpoints: no exchange", n)
		}
		before, after := placement.New("a", portName("web"), model.RoundRobin, old, nil).Slots, placement.New("a", portName("web"), model.RoundRobin, now, nil).Slots
		if got := carriedOut(t, before, x.positions); !slices.Equal(got, after) {
			t.Fatalf("%v\nmakes %v\nof    %v, want\n      %v", x.positions, got, before, after)
		}
	}
}

func carriedOut(t *testing.T, before []netip.AddrPort, x nft.Exchange) (after []netip.AddrPort) {
	t.Helper()
	for i, e := range before {
		if len(x.Out) > 0 && x.Out[0].At == uint32(i) {
			if x.Out[0].Endpoint != e {
				t.Fatalf("%v is at position %d, not %v", e, i, x.Out[0].Endpoint)
			}
			x.Out = x.Out[1:]
			continue
		}
		after = append(after, e)
	}
	if len(x.Out) > 0 {
		t.Fatalf("%v are in no order", x.Out)
	}
	for _, in := range x.In {
		after = slices.Insert(after, int(in.At), in.Endpoint)
	}
	return after
}

// TestNoExchange has changes that are about more than the endpoints that come and go.
func TestNoExchange(t *testing.T) {
	one, two := hostsAt(80, 1, 2), hostsAt(80, 1, 3)
	if newExchange("a", portName("web"), one, two) == nil {
		t.Fatal("a replaced endpoint is no exchange: this is no test")
	}
	heavy := hostsAt(80, 1, 3)
	heavy[0].Host.Weight = 2
	here, there := hostsAt(80, 1, 3), hostsAt(80, 1, 3)
	here[0].Host.Place, there[0].Host.Place = model.OnNode("a"), model.OnNode("b")
	for what, lists := range map[string][2][]model.Endpoint{
		"none":    {nil, nil},
		"another": {one, hostsAt(80, 1)},
		"weights": {one, heavy},
		"a node":  {here, there},
	} {
		if newExchange("a", portName("web"), lists[0], lists[1]) != nil {
			t.Errorf("%s: an exchange", what)
		}
	}
}
