package render_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// TestLoadLanesFirst proves that lanes are added before most elements: the kernel visits
// all elements of a map for each rule bound to it later.
func TestLoadLanesFirst(t *testing.T) {
	s := snapshot(10_000, 4)
	for i := range s.Slices {
		hosts := &s.Slices[i].Hosts
		*hosts = (*hosts)[:i*4/len(s.Slices)+1] // sorted: those with 4 endpoints are last
	}
	r := model.Resolve(s, model.Config{NodeName: "node-1"})
	state, parts := render.Load(r, render.Added(r))
	late, elements := 0, 0
	for d := range parts {
		table := d.After.Table(model.IPv4)
		for _, c := range table.Chains {
			if elements > 5000 && nft.IsLane(c.Rules) && d.Before.Table(model.IPv4).Chain(c.Name) == nil {
				late++
			}
		}
		elements += len(table.Set(nft.EndpointsMap).Elements)
	}
	if late > 3 { // the first routes may leave out a lane
		t.Errorf("%d lanes are added behind 5,000 elements", late)
	}
	if want := 25_000; elements != want {
		t.Errorf("%d endpoints are loaded, want %d", elements, want)
	}
	if p := state.Change(nil, nil); len(p.After.Tables) > 0 {
		t.Errorf("the complete state changes: %v", p.After.Tables)
	}
}
