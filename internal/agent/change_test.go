// The race detector allocates, too, and these tests count what a change allocates.

//go:build !race

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// changeBudget is how often the change of one endpoint of a plain Service may allocate, from
// the notice of the source to the kernel's answer, without what the log writes. A setting
// that the Service does not use must not add to it.
const changeBudget = 55

// changing is a source with the update that a test sets.
type changing struct{ next **model.Update }

func (changing) Await(context.Context) error    { return nil }
func (c changing) Load() (*model.Update, error) { return *c.next, nil }

// newChange returns an agent that has applied Services, and a function that replaces an
// endpoint of one of them and waits for the kernel's answer.
func newChange(tb testing.TB, services, endpoints int) (change func()) {
	tb.Helper()
	w := newWorkshop(tb, netlab.TestNamespace(tb))
	w.Log = slog.New(slog.DiscardHandler)
	w.Applier = apply.New(w.kernel, w.Log)
	w.Node = model.Config{NodeName: "node-1"}
	var last *Sync
	w.Observers = []func(*Sync){func(s *Sync) { last = s }}
	all, name := workload.Services(services, endpoints), workload.ServiceName(7)
	states := workload.ReplaceEndpoint(all[name])
	next := &model.Update{Services: all, Nodes: nodes}
	w.Source = changing{&next}
	l := w.newLoop()
	tb.Cleanup(func() { l.check.Stop() })
	l.pending.update = next
	l.run(Start)
	i := 0
	return func() {
		next = &model.Update{Services: map[model.ServiceName]model.ServiceState{name: states[i%2]}, Nodes: nodes}
		i++
		w.Changed()
		for last = nil; last == nil; {
			l.serveNext(tb.Context())
		}
		if last.Err != nil || last.Compared || len(last.Plan.Changes) != 1 {
			tb.Fatalf("%d changes, compared %t, error %v", len(last.Plan.Changes), last.Compared, last.Err)
		}
	}
}

// TestChangeBudget: 13.15. It counts allocations, which do not depend on the machine.
func TestChangeBudget(t *testing.T) {
	for _, endpoints := range []int{4, 50} {
		if n := testing.AllocsPerRun(200, newChange(t, 1000, endpoints)); n > changeBudget {
			t.Errorf("a changed endpoint of %d allocates %.0f times, more than %d: what does it compute that it does not need?", endpoints, n, changeBudget)
		}
	}
}

// changeBytes is how many bytes such a change of a Service with 50 endpoints may take. The elements of
// all of them, before and after, would take more.
const changeBytes = 10 << 10

// TestChangeBytes: a change makes the elements of the slots that change, and none of the other
// endpoints.
func TestChangeBytes(t *testing.T) {
	change := newChange(t, 100, 50)
	change()
	const changes = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range changes {
		change()
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / changes; n > changeBytes {
		t.Errorf("a changed endpoint of 50 takes %d bytes, more than %d", n, changeBytes)
	}
}

// BenchmarkChange is the cost of one changed endpoint.
func BenchmarkChange(b *testing.B) {
	for _, size := range [][2]int{{1000, 4}, {1000, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			change := newChange(b, size[0], size[1])
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}
