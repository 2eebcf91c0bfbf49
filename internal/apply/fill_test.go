package apply

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestFill: 13.14. A kernel that takes the rules of some Services while others are decided about
// holds in the end what a start with all of them writes, and the state is the same. Packets see
// nothing before the last transaction.
func TestFill(t *testing.T) {
	again := 0 // parts that change what earlier ones have added
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := workload.NewRivals()
		c.Configure(r)
		for range 30 {
			c.Change(r)
		}
		states := c.States(c.All()...)
		for name, s := range states {
			if s.Service != nil && r.IntN(3) > 0 { // as most Services are
				s.Service.Extras, s.Service.Scheduler = nil, model.RoundRobin
				states[name] = s
			}
		}
		k := newStrict(t)
		look := k.seen
		k.seen = func(before, after *nft.Ruleset) {
			if look(before, after); serves(before) {
				t.Errorf("seed %d: packets see a part of a load", seed)
			}
		}
		router := model.NewRouter()
		router.Configure(c.Config, c.Nodes(), c.Cidrs)
		state, parts := render.Fill(router.Base(), func(yield func([]model.RouteChange) bool) {
			router.Fill(states, 1+r.IntN(6), func(part []model.RouteChange) bool {
				for i := range part {
					if part[i].Old != nil {
						again++
						break
					}
				}
				return yield(part)
			})
		})
		if _, err := New(k, slog.New(slog.DiscardHandler)).Load(parts); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		start, want := render.Start(router.Routing())
		current, _, _ := k.Read()
		if p := plan.Diff(current, want.After).WithoutIdleLanes(); !p.Empty() {
			t.Fatalf("seed %d: the kernel lacks %s", seed, workload.Printed(t, p))
		}
		state.DropIdle()
		if !sameSizes(state.Sizes(), start.Sizes()) {
			t.Errorf("seed %d: sizes are %v, want %v", seed, state.Sizes(), start.Sizes())
		}
	}
	if again < 50 {
		t.Errorf("only %d parts changed what earlier ones have added", again)
	}
}

// serves reports whether packets see the rules.
func serves(r *nft.Ruleset) bool {
	return slices.ContainsFunc(r.Tables, func(t *nft.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c *nft.Chain) bool { return c.Hook != nft.NoHook })
	})
}
