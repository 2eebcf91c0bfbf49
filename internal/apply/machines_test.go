package apply

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestMachinesAgree: 3.40, 3.45. Two machines walk through different changes. Whenever
// both have the same Services, frontends with the schedulers source-hash and maglev have
// their endpoints in the same slots.
func TestMachinesAgree(t *testing.T) {
	kernelA, kernelB := newFake(), newFake()
	a, b := newWalker(1, kernelA), newWalker(2, kernelB)
	a.Config.NodeName, b.Config.NodeName = "machine-a", "machine-b"
	a.step(t, a.All()...)
	b.step(t, b.All()...)
	frontends, others := 0, 0
	for range 40 {
		for range 10 {
			a.step(t, a.one())
			b.step(t, b.one())
		}
		*b.World = *a.World
		b.Config.NodeName = "machine-b"
		a.step(t, a.All()...)
		b.step(t, b.All()...)
		inA, inB := hashed(&kernelA.ruleset), hashed(&kernelB.ruleset)
		if diff := cmp.Diff(inA, inB); diff != "" {
			t.Fatalf("the machines have endpoints in different slots (-a +b):\n%s", diff)
		}
		frontends += len(inA)
		if workload.Sorted(&kernelA.ruleset) != workload.Sorted(&kernelB.ruleset) {
			others++
		}
		b.World = workload.NewWorld(a.R.Uint64())
		b.step(t, b.All()...)
	}
	if frontends < 40 || others == 0 {
		t.Errorf("compared %d frontends, others differed %d times: the histories are not different enough", frontends, others)
	}
}

// hashed returns the endpoints of frontends whose clients decide by slot.
func hashed(r *nft.Ruleset) map[string]string {
	out := make(map[string]string)
	for _, t := range r.Tables {
		lanes := plan.NewLanes(t)
		for _, e := range t.Set(nft.EndpointsMap).Elements {
			f := e.Key.Frontend()
			for _, set := range []string{nft.ServicesMap, nft.LocalServicesMap} {
				if slots, _ := lanes.Of(set, f); slots.Scheduler.ByClient() && slots.Has(e.Key.Slot) {
					out[fmt.Sprint(set, f, e.Key.Slot)] = e.Value.Endpoint.String()
				}
			}
		}
	}
	return out
}

// TestSlotsOfOlderReleases: 3.40. The first comparison moves endpoints that an older
// release left in other slots, and finds nothing the next time.
func TestSlotsOfOlderReleases(t *testing.T) {
	k := newFake()
	w := newWalker(3, k)
	for _, i := range w.All() {
		w.Replace(i)
	}
	w.step(t, w.All()...)
	want, moved := workload.Sorted(&k.ruleset), 0
	for _, table := range k.ruleset.Tables {
		endpoints, lanes := table.Set(nft.EndpointsMap), plan.NewLanes(table)
		eachFrontend(endpoints, func(_ model.FrontendID, group []nft.Element) {
			slots, _ := lanes.Of(nft.ServicesMap, group[0].Key.Frontend())
			if n := len(group); slots.Scheduler == model.SourceHash && group[0].Value != group[n-1].Value {
				group[0].Value, group[n-1].Value = group[n-1].Value, group[0].Value
				moved += 2
			}
		})
	}
	_, delta := render.Start(w.router.Routing())
	p, err := New(k, slog.New(slog.DiscardHandler)).Apply(delta)
	if err != nil {
		t.Fatal(err)
	}
	if moved == 0 || len(p.Changes) != moved {
		t.Errorf("%d changes for %d endpoints in other slots: %s", len(p.Changes), moved, p.Summary())
	}
	if got := workload.Sorted(&k.ruleset); got != want {
		t.Errorf("the kernel differs (-want +got):\n%s", cmp.Diff(want, got))
	}
}
