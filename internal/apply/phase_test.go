package apply

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/workload"
)

// TestPhases: 13.14. It looks at what a packet may meet that is under way while a
// transaction is committed: rules of before, and elements of after, or slots of
// after behind a verdict of before. In every transaction of random steps, and
// of patches, each lane that a frontend leads to afterwards had its rules
// before, and each slot that it led to before is there afterwards.
func TestPhases(t *testing.T) {
	w := workload.NewWorld(11)
	k := newFake()
	looked := 0
	k.seen = func(before, after *nft.Ruleset) {
		for _, f := range model.Families {
			if cur, next := before.Table(f), after.Table(f); cur != nil && next != nil {
				looked += checkBetween(t, cur, next)
			}
		}
	}
	a := New(k, slog.New(slog.DiscardHandler))
	for range steps / 2 {
		if _, err := a.Apply(nft.FromNothing(w.Step())); err != nil {
			t.Fatal(err)
		}
	}
	f := &walker{w, newFollower(k)}
	f.step(t, w.All()...)
	for range steps / 2 {
		i := w.R.IntN(workload.WorldSize)
		w.Replace(i)
		f.step(t, i)
	}
	if looked < steps {
		t.Errorf("only %d frontends were looked at", looked)
	}
}

// checkBetween returns the number of frontends that it has looked at.
func checkBetween(t *testing.T, before, after *nft.Table) (looked int) {
	t.Helper()
	for _, name := range []string{nft.ServicesMap, nft.LocalServicesMap} {
		redeclared := func(set string) bool { return before.Set(set).Counters != after.Set(set).Counters }
		if redeclared(name) || redeclared(nft.EndpointsMap) {
			return 0 // a packet may be refused at this moment
		}
		for _, e := range after.Set(name).Elements {
			chain := e.Value.Verdict.Chain
			if chain == "" {
				continue
			}
			if c := before.Chain(chain); c == nil || len(c.Rules) == 0 {
				t.Errorf("%s leads to %s, which has no rules yet", e.Key.Frontend(), chain)
			}
		}
		lanes, slots := plan.NewLanes(before), after.Set(nft.EndpointsMap)
		for _, e := range before.Set(name).Elements {
			span, ok := lanes.Of(name, e.Key.Frontend())
			if !ok {
				continue
			}
			looked++
			for i := range span.Count {
				key := e.Key
				key.Slot = span.First + i
				if !hasKey(slots, key) {
					t.Errorf("%s leads to slot %d, which is gone", e.Key.Frontend(), key.Slot)
				}
			}
		}
	}
	return looked
}

func hasKey(s *nft.Set, k nft.Key) bool {
	_, ok := slices.BinarySearchFunc(s.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	return ok
}
