package apply

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// another returns a second connection to the same nf_tables.
func (s *sandbox) another(t testing.TB) *sandbox {
	t.Helper()
	o := &sandbox{ns: s.ns}
	if err := s.ns.Do(func() (err error) { o.Conn, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	o.applier = New(o.Conn, slog.New(slog.DiscardHandler))
	return o
}

// owning makes the sandbox the owner of its tables. It skips the test where the
// kernel has no such thing.
func (s *sandbox) owning(t testing.TB) *sandbox {
	t.Helper()
	switch ok, err := s.Own(); {
	case err != nil:
		t.Fatal(err)
	case !ok:
		t.Skip("tables of this kernel do not outlive their owner")
	}
	s.applier.Owns = true
	return s
}

// release closes the connection as the end of a process does.
func (s *sandbox) release(t testing.TB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// fails runs nft, which must not succeed.
func (s *sandbox) fails(t *testing.T, args ...string) {
	t.Helper()
	if err := s.ns.Run(exec.Command("nft", args...)); err == nil {
		t.Errorf("nft %s succeeds", strings.Join(args, " "))
	}
}

// TestOwnedTableStays: whatever other programs do to it, and whether it is ours
// for the first time or was taken over.
func TestOwnedTableStays(t *testing.T) {
	s := newSandbox(t)
	first := s.another(t).owning(t)
	desired := workload.Sample()
	first.apply(t, desired)
	check := func(owner *sandbox) {
		t.Helper()
		s.nft(t, "add", "table", "ip", "other")
		s.nft(t, "flush", "ruleset")
		if got := s.nft(t, "list", "tables"); strings.Contains(got, "other") {
			t.Errorf("nft flush ruleset has flushed nothing:\n%s", got)
		}
		s.fails(t, "delete", "table", "ip", "nftproxy")
		s.fails(t, "flush", "chain", "ip", "nftproxy", "dispatch")
		s.fails(t, "add", "rule", "ip", "nftproxy", "dispatch", "accept")
		if p, _, err := owner.applier.Plan(desired); err != nil || !p.Empty() {
			t.Errorf("%d changes are left to do, %v", len(p.Changes), err)
		}
	}
	check(first)
	first.release(t)

	second := s.another(t).owning(t)
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	second.apply(t, desired)
	second.apply(t, desired)
	if after, err := s.Generation(); err != nil || after != before+1 {
		t.Errorf("taking over made generation %d of %d, %v; want one transaction", after, before, err)
	}
	check(second)
	second.release(t)
}

// TestOwnedByAnother: the error of every write names the table, its owner and the
// remedy; reading works.
func TestOwnedByAnother(t *testing.T) {
	s := newSandbox(t)
	owner := s.another(t).owning(t)
	defer owner.release(t)
	desired := workload.Sample()
	owner.apply(t, desired)
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	claiming := s.another(t).owning(t)
	defer claiming.release(t)
	for name, try := range map[string]func() error{
		"apply":    func() error { _, err := s.applier.Apply(nft.FromNothing(workload.Scaled(2))); return err },
		"clean up": func() error { _, err := s.applier.Apply(nft.FromNothing(&nft.Ruleset{})); return err },
		"claim":    func() error { _, err := claiming.applier.Apply(nft.FromNothing(desired)); return err },
	} {
		var owned *kernel.OwnedError
		// The owner is looked for in the namespace of the thread.
		err := s.ns.Do(try)
		if !errors.As(err, &owned) || !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if owned.Table != "ip nftproxy" || owned.Owner.PID != os.Getpid() || owned.Port == 0 {
			t.Errorf("%s: %+v", name, owned)
		}
		if !strings.Contains(err.Error(), "--no-table-owner") || strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, _, err := s.applier.Plan(desired); err != nil || !p.Empty() {
		t.Errorf("another connection sees %d changes, %v", len(p.Changes), err)
	}
	if after, err := s.Generation(); err != nil || after != before {
		t.Errorf("generation %d became %d, %v", before, after, err)
	}
}

// TestTableBecomesOwned: a table that never had an owner is replaced, and keeps the
// valid bindings of clients.
func TestTableBecomesOwned(t *testing.T) {
	s := newSandbox(t)
	s.apply(t, workload.Sticky(model.PolicyCluster, time.Hour, "1 2"))
	for client, endpoint := range map[string]string{"198.51.100.1": "10.128.0.1", "198.51.100.2": "10.128.0.2"} {
		s.nft(t, "add", "element", "ip", "nftproxy", "affinity",
			"{ 192.168.7.1 . tcp . 30080 . "+client+" timeout 1h expires 10m : "+endpoint+" . 8080 }")
	}
	owner := s.another(t).owning(t)
	defer owner.release(t)
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	desired := workload.Sticky(model.PolicyCluster, 2*time.Hour, "2 3")
	p, err := owner.applier.Apply(nft.FromNothing(desired))
	if err != nil {
		t.Fatal(err)
	}
	if after, err := s.Generation(); err != nil || after != before+3 {
		t.Errorf("generation %d became %d, %v, want three transactions", before, after, err)
	}
	if !p.Has(plan.Change{Verb: plan.Delete, Family: model.IPv4}) {
		t.Error("the table stays")
	}
	bindings, err := s.Bindings(model.IPv4, 10)
	if err != nil || len(bindings) != 1 || len(bindings[0].Elements) != 1 || bindings[0].Elements[0].Key.Source != netip.MustParseAddr("198.51.100.2") {
		t.Errorf("bindings %v, %v", bindings, err)
	}
	if listing := s.nft(t, "list", "map", "ip", "nftproxy", "affinity"); !strings.Contains(listing, "timeout 2h expires 1h59m") &&
		!strings.Contains(listing, "timeout 2h expires 2h ") {
		t.Errorf("the binding has another time:\n%s", listing)
	}
	s.fails(t, "delete", "table", "ip", "nftproxy")
	if p, err := owner.applier.Apply(nft.FromNothing(desired)); err != nil || !p.Empty() {
		t.Errorf("%d changes are left to do, %v", len(p.Changes), err)
	}
}

// TestUnownedTable: without a claim, a table that an owner has left stays as it
// is, and every program can change it.
func TestUnownedTable(t *testing.T) {
	s := newSandbox(t)
	owner := s.another(t).owning(t)
	owner.apply(t, workload.Scaled(2))
	owner.release(t)
	s.apply(t, workload.Scaled(3))
	s.nft(t, "delete", "table", "ip", "nftproxy")
	s.apply(t, workload.Scaled(3))
	s.nft(t, "flush", "ruleset")
	if got := s.nft(t, "list", "tables"); got != "" {
		t.Errorf("tables %s", got)
	}
}
