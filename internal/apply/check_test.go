package apply

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/workload"
)

// TestCheck: on the real kernel a trial ends as the commit would, and changes
// nothing: not even the generation, which processes that watch would see.
func TestCheck(t *testing.T) {
	for _, owns := range []bool{false, true} {
		t.Run(fmt.Sprintf("owner %t", owns), func(t *testing.T) {
			s := newSandbox(t)
			if owns {
				if _, err := s.Own(); err != nil {
					t.Fatal(err)
				}
			}
			testCheck(t, s)
		})
	}
}

func testCheck(t *testing.T, s *sandbox) {
	t.Helper()
	first := workload.Scaled(2)
	s.apply(t, first)
	listing := s.nft(t, "list", "ruleset")
	for name, c := range map[string]struct {
		spoil func(*nft.Element)
		errno error
	}{
		"good":                {func(*nft.Element) {}, nil},
		"verdict to no chain": {func(e *nft.Element) { e.Value.Verdict = nft.Verdict{Action: nft.Goto, Chain: "nowhere"} }, unix.ENOENT},
		"comment too long":    {func(e *nft.Element) { e.Comment = fmt.Sprintf("%300d", 1) }, unix.ERANGE},
	} {
		t.Run(name, func(t *testing.T) {
			desired := workload.Clone(workload.Scaled(3))
			e := &desired.Tables[0].Set(nft.ServicesMap).Elements[0]
			c.spoil(e)
			plan, _, err := s.applier.Plan(desired)
			if err != nil {
				t.Fatal(err)
			}
			generation, err := s.Generation()
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := s.Check(plan, generation)
				var refused *kernel.CommitError
				if !errors.Is(err, c.errno) || c.errno != nil && (!errors.As(err, &refused) || refused.Element == nil || refused.Element.Key != e.Key) {
					t.Errorf("error %v, want %v about %s", err, c.errno, e.Key.Frontend())
				}
			}
			if now := s.nft(t, "list", "ruleset"); now != listing {
				t.Errorf("a trial has changed the rules:\n%s", now)
			}
			if after, err := s.Generation(); err != nil || after != generation {
				t.Errorf("generation %d after %d: %v", after, generation, err)
			}
		})
	}
	plan, _, err := s.applier.Plan(workload.Scaled(3))
	if err != nil {
		t.Fatal(err)
	}
	generation, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	s.nft(t, "add table ip other")
	if err := s.Check(plan, generation); !errors.Is(err, unix.ERESTART) {
		t.Errorf("trial on a stale generation: %v", err)
	}
}
