package apply

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// sandbox is a network namespace with a connection to its nf_tables.
type sandbox struct {
	*kernel.Conn
	ns      *netlab.Namespace
	applier *Applier
}

func (s *sandbox) counters() counters.Reader { return counters.Reader{Conn: s.Conn} }

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	s := &sandbox{ns: netlab.TestNamespace(t)}
	if err := s.ns.Do(func() (err error) { s.Conn, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	s.applier = New(s.Conn, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *sandbox) nft(t testing.TB, args ...string) string {
	t.Helper()
	return s.ns.NFT(t, args...)
}

// apply commits a ruleset and checks that the kernel then holds it.
func (s *sandbox) apply(t testing.TB, desired *nft.Ruleset) {
	t.Helper()
	if _, err := s.applier.Apply(nft.FromNothing(desired)); err != nil {
		t.Fatal(err)
	}
	current, _, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), workload.Sorted(current)); diff != "" {
		t.Fatalf("the kernel differs from what is wanted (-want +got):\n%s", diff)
	}
}

// TestStepsInKernel walks through random changes on the real kernel.
func TestStepsInKernel(t *testing.T) {
	s := newSandbox(t)
	w := workload.NewWorld(6)
	for range steps {
		s.apply(t, w.Step())
	}
}

// TestRepair changes our table behind our back in many ways; each is seen and
// repaired (13.11, 13.17).
func TestRepair(t *testing.T) {
	desired := workload.Sample()
	first := desired.Tables[0].Set("endpoints").Elements[0]
	key := desired.Tables[0].Set("endpoints").KeyText(first.Key)
	for name, command := range map[string]string{
		"rule added":            "add rule ip nftproxy dispatch counter accept",
		"rule in front":         "insert rule ip nftproxy dispatch ip saddr 10.0.0.0/8 accept",
		"rule with a set":       "add rule ip nftproxy dispatch tcp dport { 22, 80 } accept",
		"rule of unknown sort":  "add rule ip nftproxy dispatch log prefix \"x\" limit rate 1/second",
		"rule with a mark":      "add rule ip nftproxy dispatch meta mark set 0x4000",
		"rules flushed":         "flush chain ip nftproxy postrouting",
		"jump to our chain":     "add rule ip nftproxy dispatch jump refuse",
		"chain added":           "add chain ip nftproxy extra { type filter hook input priority 0; }",
		"chain of ours flushed": "flush chain ip nftproxy refuse",
		"set added":             "add set ip nftproxy extra { type ipv4_addr; flags timeout; }",
		"element deleted":       "delete element ip nftproxy endpoints { " + key + " }",
		"element added":         "add element ip nftproxy services { 192.0.2.1 . tcp . 80 : 0:2 }",
		"interval added":        "add element ip nftproxy service-cidrs { 172.16.0.0-172.16.0.9 }",
		"interval deleted":      "delete element ip nftproxy service-cidrs { 10.96.0.0/12 }",
		"set flushed":           "flush set ip nftproxy cluster-ips",
		"map flushed":           "flush map ip nftproxy services",
		"table deleted":         "delete table ip6 nftproxy",
		"ruleset flushed":       "flush ruleset",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			s.apply(t, desired)
			listing := s.nft(t, "list", "ruleset")
			s.nft(t, strings.Fields(command)...)
			if p, _, err := s.applier.Plan(desired); err != nil || p.Empty() {
				t.Errorf("the change is not seen: %v", err)
			}
			s.apply(t, desired)
			if after := s.nft(t, "list", "ruleset"); len(after) != len(listing) {
				t.Errorf("repaired ruleset lists otherwise:\n%s", cmp.Diff(listing, after))
			}
		})
	}
}

// TestForeignTables proves that nothing outside of our tables is read or
// written.
func TestForeignTables(t *testing.T) {
	s := newSandbox(t)
	s.nft(t, "add table ip filter")
	s.nft(t, "add chain ip filter dispatch { type filter hook input priority 0; }")
	s.nft(t, "add rule ip filter dispatch counter accept")
	s.nft(t, "add table inet nftproxy")
	s.nft(t, "add set inet nftproxy services { type ipv4_addr; }")
	before := s.nft(t, "list", "ruleset")
	desired := workload.Sample()
	s.apply(t, desired)
	s.apply(t, &nft.Ruleset{})
	if after := s.nft(t, "list", "ruleset"); after != before {
		t.Errorf("other tables changed:\n%s", cmp.Diff(before, after))
	}
}

// TestStaleGeneration proves that a plan for an older ruleset is refused.
func TestStaleGeneration(t *testing.T) {
	s := newSandbox(t)
	p, generation, err := s.applier.Plan(workload.Sample())
	if err != nil {
		t.Fatal(err)
	}
	s.nft(t, "add table ip other")
	if _, err := s.Commit(kernel.Prepared{Plan: p}, generation); !errors.Is(err, unix.ERESTART) {
		t.Errorf("commit on a stale generation: %v", err)
	}
	if _, _, err := s.applier.Plan(workload.Sample()); err != nil {
		t.Error(err)
	}
	s.apply(t, workload.Sample())
}

// TestCommitErrors checks that an error names what the kernel refused, and
// that nothing of the transaction took place, in either family (13.14, 13.18,
// 15.3).
func TestCommitErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*nft.Table)
		want  []string
		errno error
	}{
		{
			"verdict to a chain that is not there",
			func(t *nft.Table) {
				s := t.Set("lanes")
				s.Elements[len(s.Elements)/2].Value.Verdict = nft.Verdict{Action: nft.Goto, Chain: "nowhere"}
			},
			[]string{"add element { ", "goto nowhere } of map lanes", "no such file or directory"},
			unix.ENOENT,
		},
		{
			"rule that looks up a set that is not there",
			func(t *nft.Table) {
				c := t.Chain("dispatch")
				c.Rules = append(c.Rules, nft.Rule{nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: "nothing"}})
			},
			[]string{"add rule to chain dispatch: ip daddr @nothing", "no such file or directory"},
			unix.ENOENT,
		},
		{
			"name that is too long",
			func(t *nft.Table) { t.Chains[0].Name = strings.Repeat("n", 300) },
			[]string{"add chain ip nftproxy nnn"},
			unix.ERANGE,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSandbox(t)
			desired := workload.Clone(workload.Sample())
			c.spoil(desired.Tables[0])
			_, err := s.applier.Apply(nft.FromNothing(desired))
			if !errors.Is(err, c.errno) {
				t.Fatalf("error is %v, want %v", err, c.errno)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if rest := s.nft(t, "list", "ruleset"); rest != "" {
				t.Errorf("a part was committed:\n%s", rest)
			}
		})
	}
}

// TestReadAfterLoad reads what was loaded immediately before. Kernel 6.18
// resizes the hash tables of sets in the background then, and a dump taken
// in the meantime lacks elements and repeats some.
func TestReadAfterLoad(t *testing.T) {
	netlab.SkipInUserNamespace(t, "a netlink message of megabytes")
	desired := workload.Scenario(5006, 50, 0)
	s := newSandbox(t)
	if _, err := s.applier.Apply(nft.FromNothing(desired)); err != nil {
		t.Fatal(err)
	}
	p, _, err := s.applier.Plan(desired)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Empty() {
		t.Errorf("read back otherwise than written: %s", p.Summary())
	}
}
