package apply

import (
	stdcmp "cmp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	facts "github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestKeep: 13.29. A comparison leaves some Services as the kernel has them, with all that their
// elements lead to, except for frontends that others take over, and brings all others to what is wanted.
func TestKeep(t *testing.T) {
	stayed, taken := 0, 0
	for seed := range uint64(60) {
		w, k := serveWorld(t, seed)
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
			if w.R.IntN(3) == 0 {
				kept[workload.ServiceName(i)] = true
			}
		}
		w.router.SetServices(w.States(w.All()...))
		routing, others := w.router.Routing(), []model.RouteChange(nil)
		for _, c := range render.Added(w.router.Routing()) {
			if kept[c.New.Service.Name] {
				others = append(others, c)
			}
		}
		routing.Revert(others)
		keeps := func() nft.Delta {
			held, err := w.applier.Held()
			if err != nil {
				t.Fatal(err)
			}
			names := func(comment string) bool { return plan.NamesOneOf(kept, comment) }
			found := facts.Keep(held, names)
			_, delta := render.StartKeeping(routing, found.Without(routing, names))
			taken += len(found.Frontends) - len(found.Without(routing, names).Frontends)
			return delta
		}
		if _, err := w.applier.Apply(keeps()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		after, _, _ := k.Read()
		workload.CheckReferences(t, after)
		if p := plan.Diff(after, plan.Settle(after, keeps().After)); !p.Empty() {
			t.Errorf("seed %d: left to do: %s", seed, workload.Printed(t, p))
		}
		checkClasses(t, after)
		var claims render.Claims
		for _, r := range routing.Routes {
			claims.Add(r.Frontend, r.Kind)
		}
		a, b := elementsOf(before, was, kept, claims.Has), elementsOf(after, was, kept, claims.Has)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("seed %d: what is kept is not as before:\n%s", seed, diff)
		}
		stayed += len(a)
	}
	if stayed < 1000 || taken < 5 {
		t.Errorf("%d elements are kept, %d frontends are taken over: this is no test", stayed, taken)
	}
}

// TestRevert: a plan that was carried out is taken back from the elements of all sets that are there
// before and after it, except from those that were changed again.
func TestRevert(t *testing.T) {
	for seed := range uint64(60) {
		w, k := serveWorld(t, seed)
		before, _, _ := k.Read()
		for range 8 {
			w.World.Step()
		}
		w.router.SetServices(w.States(w.All()...))
		after := plan.Settle(before, render.Render(w.router.Routing()))
		p, reverted := plan.Diff(before, after), workload.Clone(after)
		p.Revert(reverted)
		for _, table := range before.Tables {
			for _, s := range table.Sets {
				now := stdcmp.Or(reverted.Table(table.Family), new(nft.Table)).Set(s.Name)
				if now != nil && !s.Dynamic && !slices.Equal(now.Elements, s.Elements) {
					t.Errorf("seed %d: the set %s differs", seed, s.Name)
				}
			}
		}
		p.Revert(before) // nothing of it was carried out
		if again := plan.Diff(before, after); !slices.EqualFunc(again.Changes, p.Changes, func(a, b plan.Change) bool { return a.Text() == b.Text() }) {
			t.Errorf("seed %d: what was not carried out is taken back", seed)
		}
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
func elementsOf(r *nft.Ruleset, routing *model.Routing, names map[model.ServiceName]bool, served func(model.Frontend, model.Kind) bool) map[string]bool {
	of := make(map[model.Frontend]bool)
	for _, route := range routing.Routes {
		if names[route.Service.Name] && !served(route.Frontend, route.Kind) {
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
