package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// flush is an intervention.
func flush(process string) kernel.Intervention {
	return kernel.Intervention{
		By: host.Process{PID: 4711, Name: process}, Touched: []string{"delete table ip nftproxy"}, Counts: map[string]int{"table": 1},
	}
}

// drifted returns a fixture with a kernel that holds what is wanted, and a
// record of its syncs.
func drifted() (f *fixture, syncs *[]Sync) {
	f, syncs = newFixture(), new([]Sync)
	f.kernel.rules = render.Render(model.Resolve(snapshot(), model.Config{NodeName: "node-1"}))
	f.observe = append(f.observe, func(s *Sync) { *syncs = append(*syncs, *s) })
	return f, syncs
}

// TestDriftIsRepairedAtOnce, with a comparison of everything, and the log says
// who did what (13.11).
func TestDriftIsRepairedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		f.kernel.rules = nil
		f.agent.Drifted(flush("firewalld"))
		time.Sleep(settling - time.Nanosecond)
		if synctest.Wait(); len(*syncs) != 1 {
			t.Error("another nftproxy may be in the middle of a change")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(*syncs) != 2 || f.kernel.commits != 1 {
			t.Fatalf("%d syncs, %d commits", len(*syncs), f.kernel.commits)
		}
		last := (*syncs)[1]
		if last.Cause != Drift || !last.Compared || len(last.Interventions) != 1 || last.Interventions[0].By.Name != "firewalld" {
			t.Errorf("%+v", last)
		}
		for _, want := range []string{"our rules were changed by another process", "process=firewalld pid=4711", "map[table:1]", "delete table ip nftproxy", "rules repaired"} {
			if !strings.Contains(f.log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, f.log)
			}
		}
		time.Sleep(30 * time.Minute)
		if len(*syncs) != 2 {
			t.Errorf("%d syncs, although nothing happens any more", len(*syncs))
		}
	})
}

// TestFightingControllers: another program writes ten times a second for an hour. The
// distance of repairs grows to a minute, and after some quiet the next one comes
// immediate again.
func TestFightingControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		start := time.Now()
		for time.Since(start) < time.Hour-time.Minute {
			f.agent.Drifted(flush("fighter"))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var at []time.Duration
		for _, s := range (*syncs)[1:] {
			at = append(at, s.Started.Sub(start))
		}
		if want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123}; len(at) < 60 || len(at) > 70 ||
			!slices.EqualFunc(at[:8], want, func(a, b time.Duration) bool { return a.Round(time.Second) == b*time.Second }) {
			t.Errorf("%d repairs in an hour, at %v", len(at), at)
		}
		if n := len((*syncs)[3].Interventions); n != maxInterventions {
			t.Errorf("a sync names %d interventions, want %d", n, maxInterventions)
		}
		time.Sleep(quiet + time.Minute)
		n := len(*syncs)
		f.agent.Drifted(flush("fighter"))
		time.Sleep(settling)
		synctest.Wait()
		if len(*syncs) != n+1 {
			t.Error("after a quiet time an intervention is not repaired immediately")
		}
	})
}

// TestChangesDoNotWaitForRepairs: a change of the source is served immediately,
// whatever others do, and a failed repair is tried again with the same news.
func TestChangesDoNotWaitForRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		for range 100 { // until repairs come once a minute
			f.agent.Drifted(flush("fighter"))
			time.Sleep(5 * time.Second)
		}
		f.agent.Drifted(flush("fighter"))
		synctest.Wait()
		n := len(*syncs)
		f.load = func() (*model.Snapshot, error) {
			s := snapshot()
			s.Services[0].Ports[0].Port = 81
			return s, nil
		}
		f.agent.Changed()
		synctest.Wait()
		if len(*syncs) != n+1 || (*syncs)[n].Cause != Change || (*syncs)[n].Compared {
			t.Fatalf("a change made %d syncs", len(*syncs)-n)
		}
		f.kernel.breakWith(errors.New("no memory"))
		time.Sleep(maxPause)
		synctest.Wait()
		last := (*syncs)[len(*syncs)-1]
		if last.Err == nil || len(last.Interventions) == 0 {
			t.Fatalf("%+v", last)
		}
		f.kernel.breakWith(nil)
		time.Sleep(DefaultSyncPeriod)
		synctest.Wait()
		if last := (*syncs)[len(*syncs)-1]; last.Err != nil || len(last.Interventions) == 0 {
			t.Errorf("%+v", last)
		}
	})
}

// TestOwnedByAnother: while another process owns the tables that is said once,
// and a second after its end the rules are applied, however long it took.
func TestOwnedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.kernel.rules = nil
		f.kernel.broken = &kernel.OwnedError{Table: "ip nftproxy", Owner: host.Process{PID: 7, Name: "nftproxy"}, Port: 7}
		f.start(t)
		time.Sleep(10 * time.Minute)
		if n := strings.Count(f.log.String(), "belongs to process 7"); n != 1 {
			t.Errorf("said %d times: %s", n, f.log)
		}
		f.kernel.breakWith(nil)
		time.Sleep(ownedRetry)
		synctest.Wait()
		if last := (*syncs)[len(*syncs)-1]; last.Err != nil {
			t.Errorf("a second after the owner has gone: %v", last.Err)
		}
		f.kernel.breakWith(&kernel.OwnedError{Table: "ip nftproxy"})
	})
}
