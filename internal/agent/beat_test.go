package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// everySecond counts the beats that are due each second. Goroutines of a sync report, too.
type everySecond struct{ atomic.Int64 }

func (s *everySecond) Beat()                     { s.Add(1) }
func (s *everySecond) BeatPeriod() time.Duration { return time.Second }

// TestBeat: 12.80, the loop itself reports that it works, at rest and while it syncs,
// and no longer when a sync hangs.
func TestBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		block := make(chan struct{})
		var hangs atomic.Bool
		f.observe = append(f.observe, func(*Sync) {
			if hangs.Load() {
				<-block
			}
		})
		f.make()
		var beats everySecond
		f.agent.Watchdog = &beats
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.agent.Run(ctx) }()
		count := func(d time.Duration) int64 {
			before := beats.Load()
			time.Sleep(d)
			synctest.Wait()
			return beats.Load() - before
		}
		synctest.Wait()
		if got := count(time.Minute); got != 60 {
			t.Errorf("at rest: %d beats in a minute, want 60", got)
		}
		hangs.Store(true)
		f.agent.Changed()
		synctest.Wait()
		if got := count(time.Hour); got != 0 {
			t.Errorf("while a sync hangs: %d beats", got)
		}
		hangs.Store(false)
		close(block)
		if got := count(time.Minute); got < 60 {
			t.Errorf("after that: %d beats in a minute", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
