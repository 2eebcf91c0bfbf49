package apply

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	facts "github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestKeepOthers: 14.25. A comparison that knows only some Services leaves the frontends of
// all others as the kernel has them, with all that their elements lead to, also those that
// its own Services ask for. It brings the rest of its own to what is wanted.
func TestKeepOthers(t *testing.T) {
	stayed, contested := 0, 0
	for seed := range uint64(60) {
		w, k := serveWorld(t, seed)
		before, _, _ := k.Read()
		was := w.router.Routing()
		own, others := make(map[model.ServiceName]bool), make(map[model.ServiceName]bool)
		for i := range workload.WorldSize {
			if name := workload.ServiceName(i); w.R.IntN(3) > 0 {
				own[name] = true
			} else {
				others[name] = true
			}
		}
		elements := elementsOf(before, was, others, func(model.Frontend, model.Kind) bool { return false })
		for range 3 {
			w.change(own)
			delta := w.beside(t, k, own)
			if _, err := w.applier.Apply(delta); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			after, _, _ := k.Read()
			workload.CheckReferences(t, after)
			checkClasses(t, after)
			want := plan.Settle(after, w.beside(t, k, own).After)
			if p := plan.Diff(after, want); !p.Empty() {
				t.Errorf("seed %d: left to do: %s", seed, workload.Printed(t, p))
			}
			if diff := cmp.Diff(elements, elementsOf(after, was, others, func(model.Frontend, model.Kind) bool { return false })); diff != "" {
				t.Fatalf("seed %d: other Services are not as before:\n%s", seed, diff)
			}
			for _, r := range was.Routes {
				if now, ok := routeOf(w.some(own).Routing(), r.Frontend); ok && others[r.Service.Name] && own[now.Service.Name] {
					contested++
				}
			}
		}
		stayed += len(elements)
		w.router.SetServices(w.States(w.All()...))
		_, delta := render.Start(w.router.Routing())
		if _, err := w.applier.Apply(delta); err != nil {
			t.Fatalf("seed %d: at the end: %v", seed, err)
		}
		if p := plan.Diff(w.held(k)); !p.Empty() {
			t.Errorf("seed %d: left at the end: %s", seed, workload.Printed(t, p))
		}
	}
	if stayed < 1000 || contested < 20 {
		t.Errorf("%d elements stay, %d frontends are asked for by two: this is no test", stayed, contested)
	}
}

// change changes some of these Services.
func (w *walker) change(own map[model.ServiceName]bool) {
	for range 6 {
		if i := w.R.IntN(workload.WorldSize); !own[workload.ServiceName(i)] {
			continue
		} else if w.R.IntN(3) == 0 {
			w.Remove(i)
		} else {
			w.Replace(i)
		}
	}
}

// some returns a router with these Services alone.
func (w *walker) some(own map[model.ServiceName]bool) *model.Router {
	r := model.NewRouter()
	r.Configure(w.Config, w.Nodes(), w.Cidrs)
	states := w.States(w.All()...)
	maps.DeleteFunc(states, func(name model.ServiceName, _ model.ServiceState) bool { return !own[name] })
	r.SetServices(states)
	return r
}

// beside returns the change to these Services beside what the kernel holds.
func (w *walker) beside(t *testing.T, k *fake, own map[model.ServiceName]bool) nft.Delta {
	t.Helper()
	held, err := w.applier.Held()
	if err != nil {
		t.Fatal(err)
	}
	kept := facts.Keep(held, func(comment string) bool { return !plan.NamesOneOf(own, comment) })
	if len(kept.Lost) > 0 {
		t.Fatalf("not kept: %v", kept.Lost)
	}
	_, delta := render.StartKeeping(w.some(own).Routing(), kept.Kept)
	return delta
}

func routeOf(r *model.Routing, f model.Frontend) (model.Route, bool) {
	for _, route := range r.Routes {
		if route.Frontend == f {
			return route, true
		}
	}
	return model.Route{}, false
}
