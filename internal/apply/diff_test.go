package apply

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

const steps = 400

// TestSteps walks through random changes and proves after each one: carried
// out, the plan gives what was wanted; a second plan is empty; and what the
// steps led to serves the same as the final state rendered from nothing.
func TestSteps(t *testing.T) {
	w := newWorld(1)
	k := newFake()
	a := New(k, slog.New(slog.DiscardHandler))
	for i := range steps {
		desired := w.step()
		if _, err := a.Apply(desired); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		current, _, err := k.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sorted(Settle(current, desired)), sorted(current)); diff != "" {
			t.Fatalf("step %d: the kernel differs from what is wanted (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(service(desired), service(current)); diff != "" {
			t.Fatalf("step %d: the steps lead elsewhere than a fresh render (-fresh +steps):\n%s", i, diff)
		}
		before := k.commits
		if plan, err := a.Apply(desired); err != nil || !plan.Empty() || k.commits != before {
			t.Fatalf("step %d: applying again: %v, %v", i, plan, err)
		}
	}
}

// TestStepsWithFaults does the same while a tenth of the commits fail, some of
// them after they took place.
func TestStepsWithFaults(t *testing.T) {
	w := newWorld(2)
	k := newFake()
	k.fails = flaky(rand.New(rand.NewPCG(3, 0)))
	a := New(k, slog.New(slog.DiscardHandler))
	for i := range steps {
		desired := w.step()
		before, _, _ := k.Read()
		plan, err := a.Apply(desired)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		current, _, _ := k.Read()
		if diff := cmp.Diff(sorted(Settle(current, desired)), sorted(current)); diff != "" {
			t.Fatalf("step %d: the kernel differs from what is wanted (-want +got):\n%s", i, diff)
		}
		if want := Diff(before, Settle(before, desired)); want.Summary() != plan.Summary() {
			t.Fatalf("step %d: reported %q, done %q", i, plan.Summary(), want.Summary())
		}
	}
}

// service returns for each frontend the endpoints in no order, and for all
// other sets the elements.
func service(r *render.Ruleset) map[string][]string {
	out := make(map[string][]string)
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			for i := range s.Elements {
				e := &s.Elements[i]
				key := s.Name + " " + e.Key.Frontend().String()
				value := s.ElementText(e)
				if hasSlots(s) {
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
			got := Settle(before, desired)
			if diff := cmp.Diff(want.Tables[0].Text(), got.Tables[0].Text()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again := Settle(got, desired); again.Tables[0].Text() != got.Tables[0].Text() {
				t.Error("settling again moves endpoints")
			}
		})
	}
}

// slotted returns a ruleset with one frontend whose endpoints are named by
// letters.
func slotted(endpoints string) *render.Ruleset {
	s := render.Set{
		Name: "endpoints",
		Key:  []render.Datatype{render.Address, render.InetProto, render.Port, render.Slot},
		Data: []render.Datatype{render.Address, render.Port},
	}
	for i, name := range strings.Fields(endpoints) {
		s.Elements = append(s.Elements, render.Element{
			Key:   render.Key{Address: addr("10.96.0.1"), Protocol: model.TCP, Port: 80, Slot: uint32(i)},
			Value: render.Value{Endpoint: addrPort("10.128.0.1", uint16(name[0]))},
		})
	}
	return &render.Ruleset{Tables: []*render.Table{{Family: model.IPv4, Sets: []*render.Set{&s}}}}
}

// TestDiffReplacesUnlikeTables covers what cannot be changed in place.
func TestDiffReplacesUnlikeTables(t *testing.T) {
	desired := newWorld(4).step()
	for len(desired.Tables) == 0 {
		desired = newWorld(5).step()
	}
	for name, spoil := range map[string]func(*render.Table){
		"set of another type":       func(t *render.Table) { t.Sets[0].Key = t.Sets[0].Key[:1] },
		"set that is not ours":      func(t *render.Table) { t.Sets[0].Key = nil },
		"chain at another hook":     func(t *render.Table) { t.Chains[len(t.Chains)-1].Hook = render.Output },
		"chain of another rank":     func(t *render.Table) { t.Chains[len(t.Chains)-1].Priority++ },
		"chain of a foreign kind":   func(t *render.Table) { t.Chains[len(t.Chains)-1].Hook = foreignHook },
		"regular chain with a hook": func(t *render.Table) { t.Chain("refuse").Hook = render.Prerouting },
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := clone(desired)
			spoil(spoilt.Tables[0])
			plan := Diff(spoilt, desired)
			if !plan.has(Change{Verb: Delete, Family: spoilt.Tables[0].Family}) {
				t.Error("the table stays")
			}
			k := newFake()
			k.ruleset = *spoilt
			if _, err := New(k, slog.New(slog.DiscardHandler)).Apply(desired); err != nil {
				t.Error(err)
			}
		})
	}
}
