package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// TestPending follows the oldest unserved request (10.6): further requests do
// not restart its clock, a failed sync leaves it, and a successful one ends it.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.retry = 5 * time.Second
		f.start(t)
		if s := f.agent.State(); !s.Pending.IsZero() || s.LastSync.IsZero() {
			t.Fatalf("after the first sync: %+v", s)
		}
		first := f.agent.State().LastSync
		port := uint16(80)
		f.load = func() (*model.Snapshot, error) {
			s := snapshot()
			port++
			s.Services[0].Ports[0].Port = port
			return s, nil
		}

		f.kernel.breakWith(errors.New("no memory"))
		time.Sleep(time.Second)
		asked := time.Now()
		for range 3 {
			f.agent.Changed()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		s := f.agent.State()
		if !s.Pending.Equal(asked) || !s.LastSync.Equal(first) || !s.LastRequest.Equal(asked.Add(2*time.Second)) {
			t.Errorf("asked at %v, %v, while syncs fail: %+v", asked, asked.Add(2*time.Second), s)
		}

		f.kernel.breakWith(nil)
		time.Sleep(f.retry + time.Second)
		synctest.Wait()
		if s := f.agent.State(); !s.Pending.IsZero() || !s.LastSync.After(first) {
			t.Errorf("after a successful sync: %+v", s)
		}
	})
}

// TestStateBeforeTheFirstSync: that nothing was ever synced is a request that
// waits (10.14), whatever the source does.
func TestStateBeforeTheFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := New(Config{})
		time.Sleep(time.Minute)
		a.Changed()
		if s := a.State(); !s.Pending.Equal(start) || !s.Started.Equal(start) || !s.LastSync.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestBackAndForth: 13.7, P12. What changed and changed back before a sync is
// no change.
func TestBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.period = time.Second
		f.kernel.rules = render.Render(model.Resolve(snapshot(), model.Config{NodeName: "node-1"}))
		f.start(t)
		f.load = func() (*model.Snapshot, error) { return &model.Snapshot{}, nil }
		f.agent.Changed()
		time.Sleep(500 * time.Millisecond)
		f.load = func() (*model.Snapshot, error) { return snapshot(), nil }
		f.agent.Changed()
		time.Sleep(time.Second)
		synctest.Wait()
		if f.kernel.commits != 0 {
			t.Errorf("%d commits after a change and its opposite", f.kernel.commits)
		}
		f.load = func() (*model.Snapshot, error) { return &model.Snapshot{}, nil }
		f.agent.Changed()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if f.kernel.commits != 2 { // what refuses ends before the tables do
			t.Errorf("%d commits after one change", f.kernel.commits)
		}
	})
}

// TestUnusableSourceIsServed: a sync would not help, the source has to change.
func TestUnusableSourceIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.start(t)
		f.load = func() (*model.Snapshot, error) { return nil, errors.New("broken file") }
		f.agent.Changed()
		synctest.Wait()
		if s := f.agent.State(); !s.Pending.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestPanic: 13.20, a panic in one sync is an error with a trace, and the next
// sync works and lacks nothing.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		broken := false
		f.addresses = func() ([]netip.Addr, error) {
			if f.turn.Load(); broken {
				panic("addresses")
			}
			return nil, nil
		}
		var syncs []error
		f.observe = append(f.observe, func(*Sync) { panic("observer") }, func(s *Sync) { f.turn.Load(); syncs = append(syncs, s.Err) })
		f.start(t)
		f.load = func() (*model.Snapshot, error) { return &model.Snapshot{}, nil }
		broken = true
		f.agent.Changed()
		f.interfaces.Expire()
		f.agent.AddressesChanged()
		synctest.Wait()
		if len(syncs) != 2 || syncs[0] != nil || syncs[1] == nil || !strings.Contains(syncs[1].Error(), "state_test.go") {
			t.Fatalf("syncs ended with %v", syncs)
		}
		broken = false
		f.pass(firstRetry)
		if len(syncs) != 3 || syncs[2] != nil {
			t.Errorf("syncs ended with %v", syncs)
		}
		if n := len(f.agent.Routing().Routes); n != 0 {
			t.Errorf("%d routes, although all Services are gone", n)
		}
		if !strings.Contains(f.log.String(), "an observer of syncs failed") {
			t.Errorf("the panic of the observer is not in the log: %s", f.log)
		}
	})
}

// TestHourlyCheck: 13.10, P92, an hour without events ends with one sync.
func TestHourlyCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		var causes []Cause
		f.observe = append(f.observe, func(s *Sync) { f.turn.Load(); causes = append(causes, s.Cause) })
		f.start(t)
		f.pass(59 * time.Minute)
		if len(causes) != 1 {
			t.Errorf("before an hour is over: %v", causes)
		}
		f.pass(2 * time.Minute)
		if len(causes) != 2 || causes[1] != Check {
			t.Errorf("after an hour: %v", causes)
		}
	})
}

// TestRetryPeriod: P90 and P91. A failed sync is tried again within
// SyncPeriod, but not before MinSyncPeriod, and a change in between is served
// immediately.
func TestRetryPeriod(t *testing.T) {
	for _, c := range []struct {
		name          string
		period, least time.Duration
		attempts      int // in 20 s, with a change at 12 s
	}{
		{"short retry period", time.Second, 0, 26},
		{"long least period", time.Second, 5 * time.Second, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.retry, f.period = c.period, c.least
				attempts := 0
				f.observe = append(f.observe, func(*Sync) { attempts++ })
				f.kernel.broken = errors.New("no memory")
				f.start(t)
				time.Sleep(12*time.Second + time.Millisecond)
				f.agent.Changed()
				time.Sleep(8 * time.Second)
				synctest.Wait()
				if attempts < c.attempts-1 || attempts > c.attempts+1 {
					t.Errorf("%d attempts, want about %d", attempts, c.attempts)
				}
			})
		})
	}
}
