package apply

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestOrderOf places endpoints as rendered where the kernel has them. Numbers stand for
// endpoints.
func TestOrderOf(t *testing.T) {
	for _, c := range []struct{ rendered, applied, order []int }{
		{nil, nil, nil},
		{[]int{1}, []int{1}, nil},
		{[]int{1, 2, 3}, []int{1, 2, 3}, nil},
		{[]int{1, 2, 3}, []int{1, 3, 2}, []int{0, 2, 1}},
		{[]int{1, 2, 3, 4}, []int{4, 1, 2, 3}, []int{3, 0, 1, 2}},
		{[]int{1, 2, 1, 2, 1}, []int{1, 1, 1, 2, 2}, []int{0, 2, 4, 1, 3}},
	} {
		rendered, applied := endpointsOf(c.rendered), endpointsOf(c.applied)
		order := orderOf(rendered, applied)
		if len(order) != len(c.order) || !slices.EqualFunc(order, c.order, func(a uint32, b int) bool { return int(a) == b }) {
			t.Errorf("%v as %v: order %v, want %v", c.rendered, c.applied, order, c.order)
		}
		if len(rendered) == 0 {
			continue
		}
		s := make(slots)
		if order != nil {
			s[rendered[0].Key.Frontend().ID()] = order
		}
		if !s.placeEndpoints(rulesetOf(rendered)) || !slices.Equal(rendered, applied) {
			t.Errorf("%v in the order %v: %v, want %v", c.rendered, order, rendered, applied)
		}
	}
}

// TestPlaceUnknown has a record of another number of slots than the frontend.
func TestPlaceUnknown(t *testing.T) {
	group := endpointsOf([]int{1, 2})
	s := slots{group[0].Key.Frontend().ID(): {1, 0, 2}}
	if s.placeEndpoints(rulesetOf(group)) {
		t.Error("the slots count as known")
	}
}

func endpointsOf(numbers []int) []nft.Element {
	var out []nft.Element
	for i, n := range numbers {
		out = append(out, nft.Element{
			Key:   nft.Key{Address: netip.MustParseAddr("10.96.0.1"), Port: 80, Slot: uint32(i)},
			Value: nft.Value{Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 128, 0, byte(n)}), 8080)},
		})
	}
	return out
}

func rulesetOf(endpoints []nft.Element) *nft.Ruleset {
	set := nft.Declare(nft.EndpointsMap)
	set.Elements = endpoints
	return &nft.Ruleset{Tables: []*nft.Table{{Family: model.IPv4, Sets: []*nft.Set{set}}}}
}
