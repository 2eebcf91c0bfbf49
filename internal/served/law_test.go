package served_test

import (
	"math/rand/v2"
	"testing"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestRandomWorlds: what is read from the rules of random worlds is what their routes say,
// wherever endpoints have their slots because of earlier changes.
func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(20) {
		w, rules := workload.NewWorld(seed), &nft.Ruleset{}
		for step := range 50 {
			w.Step()
			r := w.Resolve()
			rules = plan.Settle(rules, render.Render(r))
			if err := workload.CheckReading(r, rules); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

// TestRivals does the same for Services that claim the same frontends.
func TestRivals(t *testing.T) {
	w, random, rules := workload.NewRivals(), rand.New(rand.NewPCG(1, 2)), &nft.Ruleset{}
	for step := range 1000 {
		w.Change(random)
		r := w.Resolve()
		rules = plan.Settle(rules, render.Render(r))
		if err := workload.CheckReading(r, rules); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}
