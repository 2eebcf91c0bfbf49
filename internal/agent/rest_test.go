package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// withAffinity is a node with one Service, whose session affinity lasts so long.
func withAffinity(timeout time.Duration) func() (*model.Snapshot, error) {
	return func() (*model.Snapshot, error) {
		s := web(2, 0).Services[named(0)]
		s.Service.AffinityTimeout = timeout
		return &model.Snapshot{Services: []*model.Service{s.Service}, Slices: s.Slices, Nodes: nodes}, nil
	}
}

// TestRest: 13.10, 5.12. While nothing changes, the loop wakes up once an hour for
// the comparison, and once a minute while a Service has session affinity.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.make()
		l := f.agent.newLoop()
		defer l.check.Stop()
		change := func(load func() (*model.Snapshot, error)) {
			f.load = load
			f.agent.Changed()
			l.serveNext(t.Context())
		}
		day := func() (steps int) {
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Second)
			defer cancel()
			for l.serveNext(ctx) {
				steps++
			}
			return steps
		}
		change(withAffinity(0))
		if got := day(); got != 24 {
			t.Errorf("without affinity: the loop wakes up %d times a day, want 24", got)
		}
		change(withAffinity(time.Hour))
		if got := day(); got != 24+24*60 {
			t.Errorf("with affinity: the loop wakes up %d times a day, want %d", got, 24+24*60)
		}
		change(withAffinity(0))
		if got := day(); got != 24+1 { // the last check reports that the maps are gone
			t.Errorf("after affinity: the loop wakes up %d times a day, want 25", got)
		}
	})
}
