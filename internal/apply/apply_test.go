package apply

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestFaults gives the applier a kernel that fails in one way for a while, and
// shows the effect of faults on a change that adds a lane and removes another.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   error
		times   int
		commits int // that took place
		fails   bool
	}{
		{name: "none", commits: 3},
		{name: "another process is faster", fault: unix.ERESTART, times: 5, commits: 3},
		{name: "another process is always faster", fault: unix.ERESTART, times: 1000, fails: true},
		{name: "the answer is lost", fault: errAfter{unix.ENOBUFS}, times: 1, commits: 3},
		{name: "all answers are lost", fault: errAfter{unix.ENOBUFS}, times: 1000, commits: 3},
		{name: "there is no room for the batch", fault: unix.ENOBUFS, times: 5, commits: 3},
		{name: "there is never room for the batch", fault: unix.ENOBUFS, times: 1000, fails: true},
		{name: "interrupted before", fault: unix.EINTR, times: 5, commits: 3},
		{name: "interrupted after", fault: errAfter{unix.EINTR}, times: 2, commits: 3},
		{name: "no answer, and nothing was done", fault: kernel.ErrNoAnswer, times: 5, commits: 3},
		{name: "no answer, and it was done", fault: errAfter{kernel.ErrNoAnswer}, times: 2, commits: 3},
		{name: "the kernel is not ready", fault: unix.EAGAIN, times: 5, commits: 3},
		{name: "busy", fault: unix.EBUSY, times: 1, commits: 3},
		{name: "always busy", fault: unix.EBUSY, times: 1000, fails: true},
		{name: "the batch is too large", fault: unix.EMSGSIZE, times: 1, fails: true},
		{name: "out of memory", fault: unix.ENOMEM, times: 1, fails: true},
		{name: "no permission", fault: unix.EPERM, times: 1, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFake()
			a := New(k, slog.New(slog.DiscardHandler))
			mustApply(t, a, workload.Scaled(2))
			k.commits = 0
			k.fails = func(*plan.Plan) error {
				if c.times--; c.times < 0 {
					return nil
				}
				return c.fault
			}
			p, err := a.Apply(nft.FromNothing(workload.Scaled(3)))
			if (err != nil) != c.fails || c.fails && !errors.Is(err, c.fault) {
				t.Fatalf("error %v", err)
			}
			if k.commits != c.commits {
				t.Errorf("%d commits, want %d", k.commits, c.commits)
			}
			if !c.fails && p.Summary() != "4 to add, 1 to change, 3 to delete." {
				t.Errorf("reported: %s", p.Summary())
			}
			k.fails = func(*plan.Plan) error { return nil }
			if after, err := a.Apply(nft.FromNothing(workload.Scaled(3))); err != nil || after.Empty() == c.fails {
				t.Errorf("then %s, %v", after.Summary(), err)
			}
			if !plan.Diff(&k.ruleset, plan.Settle(&k.ruleset, workload.Scaled(3))).Empty() {
				t.Error("the kernel is not at what is wanted")
			}
		})
	}
}

// TestUnreadable: without knowing what is there nothing is written, and what was
// known is known no longer.
func TestUnreadable(t *testing.T) {
	for _, reason := range []error{unix.ENOBUFS, kernel.ErrInconsistent, kernel.ErrChanged} {
		t.Run(reason.Error(), func(t *testing.T) { unreadable(t, reason) })
	}
}

func unreadable(t *testing.T, reason error) {
	k := newFake()
	a := New(k, slog.New(slog.DiscardHandler))
	mustApply(t, a, workload.Scaled(2))
	k.commits = 0
	times := 3
	k.unreadable = func() error {
		if times--; times < 0 {
			return nil
		}
		return reason
	}
	for range 3 {
		if _, err := a.Apply(nft.FromNothing(workload.Scaled(3))); !errors.Is(err, reason) || k.commits > 0 {
			t.Errorf("error %v, %d commits", err, k.commits)
		}
		if _, err := a.Apply(nft.Delta{Before: &nft.Ruleset{}, After: &nft.Ruleset{}}); err != errUnknown {
			t.Errorf("a patch then: %v", err)
		}
	}
	mustApply(t, a, workload.Scaled(3))
	if k.commits != 3 {
		t.Errorf("%d commits, want 3", k.commits)
	}
}

// TestBusyChain is a kernel before 6.2 (13.16): a chain stays busy for a while. What
// matters is committed immediately, and the chain is deleted later or remains.
func TestBusyChain(t *testing.T) {
	for _, c := range []struct {
		name   string
		busy   int
		chains int // lanes that are left
	}{
		{"for a while", 4, 2},
		{"for ever", 1000, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFake()
			a := New(k, slog.New(slog.DiscardHandler))
			mustApply(t, a, workload.Scaled(2))
			k.fails = func(p *plan.Plan) error {
				if !p.Removes() || c.busy == 0 {
					return nil
				}
				c.busy--
				return unix.EBUSY
			}
			mustApply(t, a, workload.Scaled(3))
			current, _, _ := k.Read()
			table := current.Table(model.IPv4)
			if got := len(table.Set("endpoints").Elements); got != 3 {
				t.Errorf("%d endpoints, want 3", got)
			}
			lanes := slices.DeleteFunc(table.Chains, func(c *nft.Chain) bool { return !nft.IsLane(c.Rules) })
			if len(lanes) != c.chains {
				t.Errorf("%d lanes, want %d", len(lanes), c.chains)
			}
		})
	}
}

func mustApply(t *testing.T, a *Applier, desired *nft.Ruleset) {
	t.Helper()
	if _, err := a.Apply(nft.FromNothing(desired)); err != nil {
		t.Fatal(err)
	}
}
