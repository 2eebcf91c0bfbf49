package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// sandbox is a network namespace with a connection to its nf_tables.
type sandbox struct {
	*Conn
	ns *netlab.Namespace
}

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	return (&sandbox{ns: netlab.TestNamespace(t)}).another(t)
}

// another returns a second connection to the same namespace.
func (s *sandbox) another(t testing.TB) *sandbox {
	t.Helper()
	o := &sandbox{ns: s.ns}
	if err := s.ns.Do(func() (err error) { o.Conn, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func (s *sandbox) nft(t testing.TB, args ...string) string {
	t.Helper()
	return s.ns.NFT(t, args...)
}

// listing returns nft's listing of all rules.
func (s *sandbox) listing(t testing.TB) string {
	t.Helper()
	return netlab.Listing(func(args ...string) string { return s.nft(t, args...) }, "list", "ruleset")
}

// apply commits a ruleset and checks that the kernel then holds it.
func (s *sandbox) apply(t testing.TB, desired *nft.Ruleset) {
	t.Helper()
	for _, phase := range s.plan(t, desired).Phases() {
		if _, err := s.Commit(Prepared{Plan: phase}, AnyGeneration); err != nil {
			t.Fatal(err)
		}
	}
	current, _, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), workload.Sorted(current)); diff != "" {
		t.Fatalf("the kernel differs from what is wanted (-want +got):\n%s", diff)
	}
}

// plan returns what is to be done for a ruleset.
func (s *sandbox) plan(t testing.TB, desired *nft.Ruleset) *plan.Plan {
	t.Helper()
	current := s.asked(t, desired)
	return plan.Diff(current, plan.Settle(current, desired))
}
