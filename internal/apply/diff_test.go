package apply

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

const steps = 400

// TestSteps walks through random changes and proves after each one: carried
// out, the plan gives what was wanted; a second plan is empty; and what the
// steps led to serves the same as the final state rendered from nothing.
func TestSteps(t *testing.T) {
	w := workload.NewWorld(1)
	k := newFake()
	a := New(k, slog.New(slog.DiscardHandler))
	for i := range steps {
		desired := w.Step()
		if _, err := a.Apply(nft.FromNothing(desired)); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		current, _, err := k.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), workload.Sorted(current)); diff != "" {
			t.Fatalf("step %d: the kernel differs from what is wanted (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(service(desired), service(current)); diff != "" {
			t.Fatalf("step %d: the steps lead elsewhere than a fresh render (-fresh +steps):\n%s", i, diff)
		}
		before := k.commits
		if p, err := a.Apply(nft.FromNothing(desired)); err != nil || !p.Empty() || k.commits != before {
			t.Fatalf("step %d: applying again: %v, %v", i, p, err)
		}
	}
}

// TestStepsWithFaults does the same while a tenth of the commits fail, some of
// them after they took place.
func TestStepsWithFaults(t *testing.T) {
	w := workload.NewWorld(2)
	k := newFake()
	k.fails = flaky(rand.New(rand.NewPCG(3, 0)))
	a := New(k, slog.New(slog.DiscardHandler))
	for i := range steps {
		desired := w.Step()
		before, _, _ := k.Read()
		p, err := a.Apply(nft.FromNothing(desired))
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		current, _, _ := k.Read()
		if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), workload.Sorted(current)); diff != "" {
			t.Fatalf("step %d: the kernel differs from what is wanted (-want +got):\n%s", i, diff)
		}
		if want := plan.Diff(before, plan.Settle(before, desired)); want.Summary() != p.Summary() {
			t.Fatalf("step %d: reported %q, done %q", i, p.Summary(), want.Summary())
		}
	}
}

// service returns for each frontend the endpoints in no order, and for all
// other sets the elements.
func service(r *nft.Ruleset) map[string][]string {
	out := make(map[string][]string)
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			if slices.Contains(nft.LaneMaps, s.Name) { // like the chains that it leads to
				continue
			}
			for i := range s.Elements {
				e := &s.Elements[i]
				key := s.Name + " " + e.Key.Frontend().String()
				value := s.ElementText(e)
				if s.HasSlots() {
					value = e.Value.Endpoint.String()
				}
				out[key] = append(out[key], value)
			}
		}
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}
