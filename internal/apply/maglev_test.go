package apply

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// TestMaglevChange: 3.45. A change of an endpoint writes the slots that change and no
// others, about one in n, and nothing depends on what was there before.
func TestMaglevChange(t *testing.T) {
	const endpoints, size = 10, 1021
	all := tables(1, endpoints, model.Maglev, size)
	routed := func(without ...int) *nft.Ruleset {
		states := make(map[model.ServiceName]model.ServiceState)
		for name, s := range all {
			less := *s.Slices[0]
			less.Hosts = slices.Clone(less.Hosts)
			for _, i := range without {
				less.Hosts = slices.Delete(less.Hosts, i, i+1)
			}
			states[name] = model.ServiceState{Service: s.Service, Slices: []*model.EndpointSlice{&less}}
		}
		return renderedServices(t, states)
	}
	slots := func(r *nft.Ruleset) []nft.Element { return r.Tables[0].Set(nft.EndpointsMap).Elements }
	before, after := routed(), routed(4)
	settled := plan.Settle(before, after)
	if !slices.Equal(slots(settled), slots(after)) {
		t.Error("the slots depend on what was there before")
	}
	differ := 0
	for i, e := range slots(after) {
		if slots(before)[i] != e {
			differ++
		}
	}
	if n := len(plan.Diff(before, settled).Changes); n != differ || n < size/endpoints || n > size/endpoints*3/2 {
		t.Errorf("%d changes for %d of %d slots that differ", n, differ, size)
	}
}
