package apply

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/workload"
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
			for i := range s.Elements {
				e := &s.Elements[i]
				key := s.Name + " " + e.Key.Frontend().String()
				value := s.ElementText(e)
				if plan.HasSlots(s) {
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

// TestSettle shows where endpoints stay and where new ones go.
func TestSettle(t *testing.T) {
	for _, c := range []struct{ name, before, desired, want string }{
		{"nothing before", "", "a b c", "a b c"},
		{"same in another order", "c a b", "a b c", "c a b"},
		{"one replaced", "c a b", "a b d", "d a b"},
		{"one more", "c a b", "a b c d", "c a b d"},
		{"one less, in the middle", "c a b", "b c", "c b"},
		{"one less, the first", "c a b", "a b", "b a"},
		{"all replaced", "a b", "c d", "c d"},
		{"a weight grows", "a b", "a a b", "a b a"},
		{"a weight shrinks", "a b a", "a b", "a b"},
		{"nothing left", "a b", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, desired, want := slotted(c.before), slotted(c.desired), slotted(c.want)
			got := plan.Settle(before, desired)
			if diff := cmp.Diff(want.Tables[0].Text(), got.Tables[0].Text()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again := plan.Settle(got, desired); again.Tables[0].Text() != got.Tables[0].Text() {
				t.Error("settling again moves endpoints")
			}
		})
	}
}

// slotted returns a ruleset with one frontend whose endpoints are named by
// letters.
func slotted(endpoints string) *nft.Ruleset {
	s := nft.Set{
		Name: "endpoints",
		Key:  []nft.Datatype{nft.Address, nft.InetProto, nft.Port, nft.Slot},
		Data: []nft.Datatype{nft.Address, nft.Port},
	}
	for i, name := range strings.Fields(endpoints) {
		s.Elements = append(s.Elements, nft.Element{
			Key:   nft.Key{Address: workload.Addr("10.96.0.1"), Protocol: model.TCP, Port: 80, Slot: uint32(i)},
			Value: nft.Value{Endpoint: workload.AddrPort("10.128.0.1", uint16(name[0]))},
		})
	}
	return &nft.Ruleset{Tables: []*nft.Table{{Family: model.IPv4, Sets: []*nft.Set{&s}}}}
}

// TestDiffReplacesUnlikeTables covers what cannot be changed in place.
func TestDiffReplacesUnlikeTables(t *testing.T) {
	desired := workload.NewWorld(4).Step()
	for len(desired.Tables) == 0 {
		desired = workload.NewWorld(5).Step()
	}
	for name, spoil := range map[string]func(*nft.Table){
		"set of another type":       func(t *nft.Table) { t.Sets[0].Key = t.Sets[0].Key[:1] },
		"set that is not ours":      func(t *nft.Table) { t.Sets[0].Key = nil },
		"chain at another hook":     func(t *nft.Table) { t.Chains[len(t.Chains)-1].Hook = nft.Output },
		"chain of another rank":     func(t *nft.Table) { t.Chains[len(t.Chains)-1].Priority++ },
		"chain of a foreign kind":   func(t *nft.Table) { t.Chains[len(t.Chains)-1].Hook = kernel.ForeignHook },
		"regular chain with a hook": func(t *nft.Table) { t.Chain("refuse").Hook = nft.Prerouting },
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := workload.Clone(desired)
			spoil(spoilt.Tables[0])
			p := plan.Diff(spoilt, desired)
			if !p.Has(plan.Change{Verb: plan.Delete, Family: spoilt.Tables[0].Family}) {
				t.Error("the table stays")
			}
			k := newFake()
			k.ruleset = *spoilt
			if _, err := New(k, slog.New(slog.DiscardHandler)).Apply(nft.FromNothing(desired)); err != nil {
				t.Error(err)
			}
		})
	}
}
