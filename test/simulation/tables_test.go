package simulation

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/simulation"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// both is the kernel and its model, which get the same transactions.
type both struct {
	*kernel.Conn
	model *simulation.Conn
	t     *testing.T
	sent  []*plan.Plan
}

// Commit implements [apply.Kernel]: both carry the transaction out, or both refuse it.
func (b *both) Commit(p kernel.Prepared, _ uint32) (codec.Size, error) {
	size, err := b.Conn.Commit(p, kernel.AnyGeneration)
	_, modelErr := b.model.Commit(kernel.Prepared{Plan: p.Plan}, kernel.AnyGeneration)
	if (err == nil) != (modelErr == nil) {
		b.t.Fatalf("the kernel: %v, its model: %v", err, modelErr)
	}
	b.sent = append(b.sent, p.Plan)
	return size, err
}

// compare compares what both hold.
func (b *both) compare() {
	b.t.Helper()
	held, _, err := b.Read()
	if err != nil {
		b.t.Fatal(err)
	}
	model, _, err := b.model.ReadExpecting(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Sorted(held), workload.Sorted(model)); diff != "" {
		b.t.Fatalf("the kernel and its model differ (-kernel +model):\n%s", diff)
	}
}

// TestTables: the model of nf_tables takes what the kernel takes, refuses what it refuses, and is read back as it is: for
// the changes of random objects, and for transactions that come at the wrong time.
func TestTables(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ns := netlab.TestNamespace(t)
			tables := simulation.NewTables(false)
			tables.Strict = true
			b := &both{model: tables.Connect(func() {}), t: t}
			if err := ns.Do(func() (err error) { b.Conn, err = kernel.Open(); return err }); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }() // the namespace ends
			applier := apply.New(b, slog.New(slog.DiscardHandler))
			w := workload.NewWorld(seed)
			refused := 0
			for range 25 {
				if _, err := applier.Apply(nft.FromNothing(w.Step())); err != nil {
					t.Fatal(err)
				}
				b.compare()
				for range min(10, len(b.sent)) {
					if p := b.sent[w.R.IntN(len(b.sent))]; isSimple(p) && b.repeat(p) {
						refused++
					}
				}
			}
			if refused == 0 {
				t.Error("nothing is refused: this is no test")
			}
		})
	}
}

// isSimple reports whether a transaction adds and deletes single elements alone: the model knows the rest only in the order
// in which a process sends it.
func isSimple(p *plan.Plan) bool {
	return !slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Kind() != "element" || c.Set.Interval || c.Verb == plan.Replace })
}

// repeat sends a transaction again, and reports whether both refuse it.
func (b *both) repeat(p *plan.Plan) (refused bool) {
	b.t.Helper()
	before := len(b.sent)
	_, err := b.Commit(kernel.Prepared{Plan: p}, kernel.AnyGeneration)
	b.sent = b.sent[:before]
	b.compare()
	return err != nil
}
