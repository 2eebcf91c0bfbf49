package apply

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestBusyNeighbour: a program that writes to its own table faster than ours can be
// read prevents neither reads nor writes, whether we own our tables, watch other
// programs, or neither.
func TestBusyNeighbour(t *testing.T) {
	t.Run("owner", func(t *testing.T) {
		s := newSandbox(t)
		owner := s.another(t).owning(t)
		defer owner.release(t)
		testBusyNeighbour(t, owner)
	})
	t.Run("watcher", func(t *testing.T) {
		s := newSandbox(t)
		var w *kernel.Watcher
		if err := s.ns.Do(func() (err error) { w, err = kernel.Watch(s.Conn); return err }); err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		testBusyNeighbour(t, s)
	})
	t.Run("neither", func(t *testing.T) { testBusyNeighbour(t, newSandbox(t)) })
}

func testBusyNeighbour(t *testing.T, s *sandbox) {
	t.Helper()
	desired := workload.Scenario(2000, 4, 0)
	s.apply(t, desired)
	defer s.busy(t)()
	// A read can fall between two of the neighbour's writes; one that does not is
	// what this test is about.
	const attempts = 200
	var current *nft.Ruleset
	for attempt := 0; ; attempt++ {
		if attempt == attempts {
			t.Fatalf("the test proves nothing: there were no writes during %d reads", attempts)
		}
		before, err := s.Conn.Generation()
		if err != nil {
			t.Fatal(err)
		}
		if current, _, err = s.Read(); err != nil {
			t.Fatal(err)
		}
		after, err := s.Conn.Generation()
		if err != nil {
			t.Fatal(err)
		}
		if after != before {
			break
		}
	}
	if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), workload.Sorted(current)); diff != "" {
		t.Errorf("the kernel differs from what is wanted (-want +got):\n%s", diff)
	}
	for _, next := range []*nft.Ruleset{workload.Scenario(2001, 5, 0), workload.Sample()} {
		s.apply(t, next)
	}
}

// busy writes to another table without pause, until the function that it returns
// is called.
func (s *sandbox) busy(t *testing.T) (end func()) {
	t.Helper()
	var c *nftables.Conn
	err := s.ns.Do(func() (err error) { c, err = nftables.New(nftables.AsLasting()); return err })
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer func() { _ = c.CloseLasting() }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			table := c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyINet})
			c.AddChain(&nftables.Chain{Name: "other", Table: table})
			c.DelTable(table)
			if err := c.Flush(); err != nil {
				t.Errorf("write another table: %v", err)
				return
			}
		}
	})
	return func() {
		close(stop)
		running.Wait()
	}
}

// TestTableComesAndGoes: a program that adds and deletes our tables while they are
// read causes at most the errors of any other change.
func TestTableComesAndGoes(t *testing.T) {
	s := newSandbox(t)
	other := s.another(t)
	desired := workload.Scenario(100, 4, 0)
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, next := range []*nft.Ruleset{desired, {}} {
				if _, err := other.applier.Apply(nft.FromNothing(next)); err != nil {
					t.Errorf("another program cannot write: %v", err)
					return
				}
			}
		}
	})
	defer running.Wait()
	defer close(stop)
	ending := workload.Clone(desired) // between the two transactions that delete the tables
	for _, c := range plan.Diff(desired, &nft.Ruleset{}).Phases()[0].Changes {
		if err := workload.CarryOut(ending, &c); err != nil {
			t.Fatal(err)
		}
	}
	const reads, enough = 10_000, 5
	whole := 0
	for read := 0; whole < enough; read++ {
		if read == reads {
			t.Fatalf("the test proves nothing: %d of %d reads found something", whole, reads)
		}
		current, _, err := s.Read()
		switch {
		case errors.Is(err, kernel.ErrChanged):
		case err != nil:
			t.Fatal(err)
		case len(current.Tables) > 0:
			whole++
			got := workload.Sorted(current)
			if diff := cmp.Diff(workload.Sorted(plan.Settle(current, desired)), got); diff != "" && got != workload.Sorted(plan.Settle(current, ending)) {
				t.Fatalf("half of the rules are read (-want +got):\n%s", diff)
			}
		}
	}
}
