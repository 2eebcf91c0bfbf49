package render_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// TestLoad proves that a load has base chains in its last part only, and that nothing
// differs afterwards from the state that Start returns.
func TestLoad(t *testing.T) {
	r := model.Resolve(snapshot(10_000, 3), model.Config{NodeName: "node-1"})
	state, deltas := render.Load(r, render.Added(r))
	var last *nft.Table
	endpoints, parts := 0, 0
	for d := range deltas {
		if parts++; last != nil && isHooked(last) {
			t.Fatal("there are base chains before the last part")
		}
		last = d.After.Table(model.IPv4)
		endpoints += len(last.Set(nft.EndpointsMap).Elements)
	}
	if want := 30_000; endpoints != want || parts < 3 || !isHooked(last) {
		t.Errorf("%d endpoints in %d parts, want %d; base chains at last: %v", endpoints, parts, want, isHooked(last))
	}
	if d := state.Change(nil, nil); len(d.After.Tables) > 0 {
		t.Errorf("the complete state changes: %v", d.After.Tables)
	}
	start, _ := render.Start(r)
	for f, size := range sizes(start) {
		if sizes(state)[f] != size {
			t.Errorf("%s has %d elements, want %d", f, sizes(state)[f], size)
		}
	}
}

func isHooked(t *nft.Table) bool {
	for _, c := range t.Chains {
		if c.Hook != nft.NoHook {
			return true
		}
	}
	return false
}

func sizes(s *render.State) map[string]int {
	out := make(map[string]int)
	for _, size := range s.Sizes() {
		out[size.Set] = size.Elements
	}
	return out
}

// TestLoadTables: tables of Maglev count with all of their slots, so that no part is much
// larger than the others.
func TestLoadTables(t *testing.T) {
	r := model.Resolve(snapshot(40, 3), model.Config{NodeName: "node-1", Scheduler: model.Maglev})
	_, deltas := render.Load(r, render.Added(r))
	parts := 0
	for d := range deltas {
		parts++
		if n := len(d.After.Table(model.IPv4).Set(nft.EndpointsMap).Elements); n > 10_000 {
			t.Errorf("part %d has %d elements", parts, n)
		}
	}
	if parts < 5 {
		t.Errorf("%d parts", parts)
	}
}
