package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestBeat: 12.80, the loop itself reports that it works, at rest and while it syncs,
// and no longer when a sync hangs.
func TestBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		block := make(chan struct{})
		hangs := false
		f.observe = append(f.observe, func(*Sync) {
			if hangs {
				<-block
			}
		})
		f.make()
		beats := 0
		f.agent.Beat, f.agent.BeatPeriod = func() { beats++ }, time.Second
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.agent.Run(ctx) }()
		count := func(d time.Duration) int {
			before := beats
			time.Sleep(d)
			synctest.Wait()
			return beats - before
		}
		synctest.Wait()
		if got := count(time.Minute); got != 60 {
			t.Errorf("at rest: %d beats in a minute, want 60", got)
		}
		hangs = true
		f.agent.Changed()
		synctest.Wait()
		if got := count(time.Hour); got != 0 {
			t.Errorf("while a sync hangs: %d beats", got)
		}
		hangs = false
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
