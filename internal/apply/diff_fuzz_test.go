package apply

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/steer"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// FuzzDiff: 13.11. The plan turns any content of our tables, also that of other
// programs, into the wanted one. A second plan is empty, and so is that from a ruleset
// to itself. Foreign elements of a valid dynamic map stay.
func FuzzDiff(f *testing.F) {
	steer.Seed(f, 0, 60, 200, 400, 800)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1000 {
			t.Skip("more takes long and shows nothing else")
		}
		r, left := steer.New(data)
		c := workload.NewRivals()
		current := workload.Clone(someRuleset(c, r, left.Left()/4))
		k := newStrict(t)
		k.ruleset = *current
		k.bind(r)
		for range r.IntN(6) {
			spoil(r, current)
		}
		desired := someRuleset(c, r, left.Left())
		settled := plan.Settle(current, desired)
		if again := plan.Settle(settled, desired); workload.Sorted(again) != workload.Sorted(settled) {
			t.Errorf("settling again moves endpoints:\n%s", cmp.Diff(workload.Sorted(settled), workload.Sorted(again)))
		}
		for _, same := range []*nft.Ruleset{desired, settled} {
			if p := plan.Diff(same, same); !p.Empty() {
				t.Errorf("from a ruleset to itself: %s", workload.Printed(t, p))
			}
		}
		workload.Printed(t, plan.Diff(current, settled))
		k.ruleset = *current
		a := New(k, slog.New(slog.DiscardHandler))
		if _, err := a.Apply(nft.FromNothing(desired)); err != nil {
			t.Fatal(err)
		}
		after, _, _ := k.Read()
		if p := plan.Diff(after, plan.Settle(after, desired)); !p.Empty() {
			t.Errorf("left to do: %s", workload.Printed(t, p))
		}
		if diff := cmp.Diff(reaches(desired), reaches(after)); diff != "" {
			t.Errorf("clients reach other endpoints (-want +got):\n%s", diff)
		}
		workload.ForgetBindings(after)
		if diff := cmp.Diff(workload.Sorted(settled), workload.Sorted(after)); diff != "" {
			t.Errorf("the plan leads elsewhere (-want +got):\n%s", diff)
		}
	})
}

// someRuleset changes the country while there are more than so many bytes left,
// and renders it.
func someRuleset(c *workload.Rivals, r *rand.Rand, changes int) *nft.Ruleset {
	for range changes/4 + 1 {
		if r.IntN(8) == 7 {
			c.Configure(r)
		}
		c.Change(r)
	}
	c.Config.AffinityCapacity = []uint32{0, 1000}[r.IntN(2)]
	return c.Render()
}

// spoil changes a ruleset as another program may, or another version of
// ours.
func spoil(r *rand.Rand, rs *nft.Ruleset) {
	if len(rs.Tables) == 0 {
		rs.Tables = append(rs.Tables, &nft.Table{Family: model.Families[r.IntN(2)]})
		return
	}
	t := rs.Tables[r.IntN(len(rs.Tables))]
	switch {
	case r.IntN(8) == 7:
		t.Chains = append(t.Chains, &nft.Chain{Name: freeName(t, r), Hook: []nft.Hook{nft.NoHook, nft.Input, nft.ForeignHook}[r.IntN(3)]})
	case r.IntN(8) == 7:
		t.Sets = append(t.Sets, &nft.Set{Name: freeName(t, r), Key: []nft.Datatype{nft.Address}[:r.IntN(2)]})
	case len(t.Chains) > 0 && r.IntN(3) == 2:
		spoilChain(r, t, t.Chains[r.IntN(len(t.Chains))])
	case len(t.Sets) > 0:
		spoilSet(r, t, t.Sets[r.IntN(len(t.Sets))])
	}
}

// freeName returns a name that nothing in the table has, perhaps one that
// another ruleset of ours uses.
func freeName(t *nft.Table, r *rand.Rand) string {
	for _, name := range []string{"rr-1-0", "sticky-rr-2-3", "affinity-90", "affinity", "remember", "postrouting", "x"}[r.IntN(7):] {
		if t.Set(name) == nil && t.Chain(name) == nil {
			return name
		}
	}
	return "xx"[:1] + string(rune('a'+len(t.Sets)+len(t.Chains)))
}

func spoilChain(r *rand.Rand, t *nft.Table, c *nft.Chain) {
	foreign := nft.Rule{nft.Foreign{Description: "log"}}
	switch r.IntN(8) {
	case 0:
		c.Rules = nil
	case 1:
		c.Rules = append([]nft.Rule{foreign}, c.Rules...)
	case 2:
		if name := regular(r, t); name != "" {
			c.Rules = append(slices.Clone(c.Rules), nft.Rule{nft.Verdict{Action: nft.Jump, Chain: name}})
		}
	case 3:
		c.Rules = append(slices.Clone(c.Rules), c.Rules...)
	case 4:
		if c.Hook != nft.NoHook {
			c.Hook = nft.ForeignHook
		}
	case 5:
		c.Priority++
	default:
		if n := len(c.Rules); n > 0 {
			c.Rules = slices.Delete(slices.Clone(c.Rules), 0, 1)
		}
	}
}

// regular returns the name of a chain that rules may jump to: one
// without a hook. It is empty if there is none.
func regular(r *rand.Rand, t *nft.Table) string {
	var names []string
	for _, c := range t.Chains {
		if c.Hook == nft.NoHook {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[r.IntN(len(names))]
}

func spoilSet(r *rand.Rand, t *nft.Table, s *nft.Set) {
	switch r.IntN(10) {
	case 0:
		s.Elements = nil
	case 1:
		s.Key, s.Elements = nil, nil // not understood
	case 2:
		s.Size++
	case 3:
		s.Counters = !s.Counters
	case 4:
		s.Interval = !s.Interval
	default:
		if len(s.Elements) > 0 {
			spoilElement(r, t, s, r.IntN(len(s.Elements)))
		}
	}
}

func spoilElement(r *rand.Rand, t *nft.Table, s *nft.Set, i int) {
	e := s.Elements[i]
	switch r.IntN(5) {
	case 0:
		s.Elements = slices.Delete(s.Elements, i, i+1)
	case 1:
		s.Elements[i].Comment = "spoilt\x1b\""
	case 2:
		e.Key.Port++
		e.Key.Slot += uint32(r.IntN(2))
		if !hasKey(s, e.Key) {
			s.Elements = append(s.Elements, e)
			s.Sort()
		}
	default:
		if name := regular(r, t); e.Value.Verdict.Action != nft.NoAction && name != "" {
			s.Elements[i].Value.Verdict = nft.Verdict{Action: nft.Goto, Chain: name}
		} else if e.Value.Endpoint.IsValid() {
			s.Elements[i].Value.Endpoint = workload.AddrPort(e.Value.Endpoint.Addr().Next().String(), 1)
		}
	}
}
