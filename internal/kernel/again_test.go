package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestCommitAgain: a transaction whose answer was lost is sent again. If it was
// committed, it is refused the second time, or changes nothing.
func TestCommitAgain(t *testing.T) {
	s, w := newSandbox(t), workload.NewWorld(5)
	s.apply(t, w.Step())
	refused := 0
	for range 100 {
		desired := w.Step()
		for _, phase := range s.plan(t, desired).Phases() {
			if _, err := s.Commit(Prepared{Plan: phase}, AnyGeneration); err != nil {
				t.Fatal(err)
			}
			first := s.held(t)
			_, err := s.Commit(Prepared{Plan: phase}, AnyGeneration)
			if outcome := OutcomeOf(err); outcome == Refused || outcome == Busy {
				refused++
			} else if outcome != Done {
				t.Errorf("the second time: %v", err)
			}
			if diff := cmp.Diff(first, s.held(t)); diff != "" {
				t.Fatalf("the second time changes the rules: %v\n%s", err, diff)
			}
		}
		if p := plan.Diff(s.read(t), plan.Settle(s.read(t), desired)); !p.Empty() {
			t.Fatalf("left to do: %s", p.Summary())
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func (s *sandbox) read(t testing.TB) *nft.Ruleset {
	t.Helper()
	r, _, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *sandbox) held(t testing.TB) string { return workload.Sorted(s.read(t)) }
