package apply

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestKeep: a comparison leaves some Services as the kernel has them, with all that their
// elements lead to, and brings all others to what is wanted.
func TestKeep(t *testing.T) {
	stayed := 0
	for seed := range uint64(60) {
		k := newFake()
		w := newWalker(seed, k)
		for range 15 {
			w.World.Step()
		}
		w.step(t, w.All()...)
		before, _, _ := k.Read()
		was := w.router.Routing()
		for range 8 {
			if i := w.R.IntN(workload.WorldSize); w.R.IntN(3) == 0 {
				w.Remove(i)
			} else {
				w.Replace(i)
			}
		}
		kept := make(map[model.ServiceName]bool)
		for i := range workload.WorldSize {
			kept[workload.ServiceName(i)] = w.R.IntN(3) == 0
		}
		w.router.SetServices(w.States(w.All()...))
		routing, others := w.router.Routing(), []model.RouteChange(nil)
		for _, c := range render.Added(w.router.Routing()) {
			if kept[c.New.Service.Name] {
				others = append(others, c)
			}
		}
		routing.Revert(others)
		_, delta := render.StartBeside(routing, others)
		for name := range kept {
			if kept[name] {
				delta.Keep = append(delta.Keep, name)
			}
		}
		if _, err := w.applier.Apply(delta); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		after, _, _ := k.Read()
		workload.CheckReferences(t, after)
		_, again := render.StartBeside(routing, others)
		want := plan.Settle(after, again.After)
		p := plan.Diff(after, want)
		for _, c := range p.Changes {
			if c.Verb != plan.Delete {
				t.Errorf("seed %d: others: left to do: %s", seed, c.Text())
			}
		}
		for _, c := range p.Keeping(delta.Keep, echoes(want, after), &plan.Plan{}).Changes {
			t.Errorf("seed %d: others: left to do: %s", seed, c.Text())
		}
		checkClasses(t, after)
		served := func(f model.Frontend) bool {
			return slices.ContainsFunc(routing.Routes, func(r model.Route) bool {
				return nft.FrontendKey(r.Frontend) == nft.FrontendKey(f) && r.Frontend.IsRange() == f.IsRange()
			})
		}
		a, b := elementsOf(before, was, kept, served), elementsOf(after, was, kept, served)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("seed %d: what is kept is not as before:\n%s", seed, diff)
		}
		stayed += len(a)
	}
	if stayed < 1000 {
		t.Errorf("only %d elements are kept", stayed)
	}
}

// checkClasses fails the test for frontends whose class leads nowhere.
func checkClasses(t *testing.T, r *nft.Ruleset) {
	t.Helper()
	for _, table := range r.Tables {
		lanes := plan.NewLanes(table)
		for services := range setsOf(table, slices.Concat(nft.ServiceMaps[:1], nft.LocalServiceMaps[:1])) {
			for i := range services.Elements {
				if e := &services.Elements[i]; lanes.Verdict(e.Value.Class) == (nft.Verdict{}) {
					t.Errorf("%s leads nowhere", services.ElementText(e))
				}
			}
		}
	}
}

// elementsOf returns the elements about frontends of some Services that are not served
// otherwise.
func elementsOf(r *nft.Ruleset, routing *model.Routing, names map[model.ServiceName]bool, served func(model.Frontend) bool) map[string]bool {
	of := make(map[model.Frontend]bool)
	for _, route := range routing.Routes {
		if names[route.Service.Name] && !served(route.Frontend) {
			f := route.Frontend
			f.Last = 0
			of[f] = true
		}
	}
	out := make(map[string]bool)
	for _, table := range r.Tables {
		for _, s := range table.Sets {
			for i := range s.Elements {
				if e := &s.Elements[i]; of[e.Key.Frontend()] && !s.Dynamic && !slices.Contains(nft.SharedSets, s.Name) {
					out[s.Name+" "+s.ElementText(e)] = true
				}
			}
		}
	}
	return out
}

// held returns what the kernel holds, and what it should.
func (w *walker) held(k *fake) (current, want *nft.Ruleset) {
	current, _, _ = k.Read()
	return current, plan.Settle(current, render.Render(w.router.Routing()))
}
