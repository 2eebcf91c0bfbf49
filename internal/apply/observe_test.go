package apply

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// following calls its functions.
type following struct {
	Unobserved
	committed func(Commit)
	postponed func([]model.Family)
}

func (f following) Committed(c Commit) {
	if f.committed != nil {
		f.committed(c)
	}
}

func (f following) Postponed(families []model.Family) {
	if f.postponed != nil {
		f.postponed(families)
	}
}

// TestObserve: the observer gets the transactions that the kernel took and those that
// it refused, and none where nothing was to do.
func TestObserve(t *testing.T) {
	s := newSandbox(t)
	var seen []Commit
	s.applier.Observer = following{committed: func(c Commit) { seen = append(seen, c) }}
	s.apply(t, workload.Scaled(2))
	s.apply(t, workload.Scaled(2))
	if len(seen) != 1 {
		t.Fatalf("%d transactions, want 1", len(seen))
	}
	encoded, err := codec.Encode(seen[0].Plan)
	if err != nil {
		t.Fatal(err)
	}
	if c := seen[0]; c.Err != nil || c.Size != encoded.Size() || c.Size.Bytes == 0 || c.Duration <= 0 {
		t.Errorf("observed %+v, want size %+v", c, encoded.Size())
	}

	k := newFake()
	k.fails = func(*plan.Plan) error { return unix.ENOMEM }
	a := New(k, slog.New(slog.DiscardHandler))
	a.Observer = s.applier.Observer
	if _, err := a.Apply(nft.FromNothing(workload.Scaled(2))); err == nil {
		t.Fatal("no error")
	}
	if len(seen) != 2 || !errors.Is(seen[1].Err, unix.ENOMEM) || len(seen[1].Plan.Changes) == 0 {
		t.Errorf("observed %+v", seen[1:])
	}
}

// TestPostponed: the report names the family whose chains the kernel does not let go.
func TestPostponed(t *testing.T) {
	k := newFake()
	a := New(k, slog.New(slog.DiscardHandler))
	var seen [][]model.Family
	a.Observer = following{postponed: func(f []model.Family) { seen = append(seen, f) }}
	mustApply(t, a, workload.Scaled(2))
	k.fails = func(p *plan.Plan) error {
		if p.Removes() {
			return unix.EBUSY
		}
		return nil
	}
	mustApply(t, a, workload.Scaled(3))
	if len(seen) != 1 || !slices.Equal(seen[0], []model.Family{model.IPv4}) {
		t.Errorf("observed %v, want IPv4 once", seen)
	}
}
