package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// flush is an intervention after which connections fail.
func flush(process string) kernel.Intervention {
	return kernel.Intervention{
		By: host.Process{PID: 4711, Name: process}, Touched: []string{"delete table ip nftproxy"}, Counts: map[string]int{"table": 1},
		Urgent: true,
	}
}

// scratch is an intervention that concerns a single element.
func scratch(process string) kernel.Intervention {
	return kernel.Intervention{
		By: host.Process{PID: 4711, Name: process}, Touched: []string{"delete element { 1 } of map ip nftproxy services"}, Counts: map[string]int{"element": 1},
	}
}

// drifted returns a fixture with a kernel that holds what is wanted, and a
// record of its syncs.
func drifted() (f *fixture, syncs *[]Sync) {
	f, syncs = newFixture(), new([]Sync)
	f.kernel.rules = render.Render(model.Resolve(snapshot(), model.Config{NodeName: "node-1"}))
	f.observe = append(f.observe, func(s *Sync) {
		f.turn.Load()
		*syncs = append(*syncs, *s)
	})
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
		f.pass(settling - time.Nanosecond)
		if len(*syncs) != 1 {
			t.Error("another nftproxy may be in the middle of a change")
		}
		f.pass(time.Nanosecond)
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
		f.pass(30 * time.Minute)
		if len(*syncs) != 2 {
			t.Errorf("%d syncs, although nothing happens any more", len(*syncs))
		}
	})
}

// TestVanishedTablesReturn within a second, however often they vanish: another program removes
// them each second for ten minutes, or ten times a second, also after changes of single elements.
func TestVanishedTablesReturn(t *testing.T) {
	for _, distance := range []time.Duration{time.Second, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := drifted()
			since := time.Time{} // when the tables vanished that are not back
			longest, repairs := time.Duration(0), 0
			f.observe = append(f.observe, func(s *Sync) {
				f.turn.Load()
				if !since.IsZero() && len(s.Interventions) > 0 {
					longest, repairs = max(longest, time.Since(since)), repairs+1
					since = time.Time{}
				}
			})
			f.start(t)
			for range 100 { // until repairs of elements come once a minute
				f.agent.Drifted(scratch("fighter"))
				f.pass(5 * time.Second)
			}
			f.agent.Drifted(scratch("fighter"))
			synctest.Wait()
			for start := time.Now(); time.Since(start) < 10*time.Minute; f.pass(distance) {
				f.kernel.hold(nil)
				if since.IsZero() {
					since = time.Now()
				}
				f.agent.Drifted(flush("firewall"))
				synctest.Wait()
			}
			if longest > urgentPause || repairs < 600 || repairs > 1200 {
				t.Errorf("every %v: %d repairs, the longest outage is %v", distance, repairs, longest)
			}
		})
	}
}

// TestMissedInterventions are urgent: tables may have vanished. Those of another daemon with
// other input are not: its additions are undone, and so on.
func TestMissedInterventions(t *testing.T) {
	other := snapshot()
	other.Services[0].Name.Name = "another"
	for _, c := range []struct {
		name        string
		left        *nft.Ruleset // by the other program
		least, most int          // repairs
	}{
		{"vanished tables", nil, 1000, 1200},
		{"another daemon", render.Render(model.Resolve(other, model.Config{NodeName: "node-1"})), 10, 16},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, syncs := drifted()
			f.start(t)
			for start := time.Now(); time.Since(start) < 10*time.Minute; f.pass(100 * time.Millisecond) {
				f.kernel.hold(c.left)
				f.agent.Drifted(kernel.Intervention{Missed: true})
			}
			if n := len(*syncs) - 1; n < c.least || n > c.most {
				t.Errorf("%s: %d repairs, want %d to %d", c.name, n, c.least, c.most)
			}
		})
	}
}

// TestFailedRepairIsRetried within a second while tables are missing, and after a success
// the first retry of another failure is a short one again.
func TestFailedRepairIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		for range 2 {
			f.kernel.hold(nil)
			f.kernel.breakWith(errors.New("no memory"))
			f.agent.Drifted(flush("firewalld"))
			f.pass(10 * time.Minute)
			f.kernel.breakWith(nil)
			n := len(*syncs)
			f.pass(shortRetry)
			if len(*syncs) == n || (*syncs)[len(*syncs)-1].Err != nil {
				t.Fatal("a second after the kernel works the tables are not back")
			}
		}
		f.kernel.breakWith(errors.New("no memory"))
		f.agent.Drifted(scratch("nft"))
		f.pass(settling)
		f.kernel.breakWith(nil)
		f.pass(firstRetry)
		if (*syncs)[len(*syncs)-1].Err != nil {
			t.Error("the retry waits as long as after many failures")
		}
	})
}

// TestRetryRepairs: a repair that failed before it has compared anything is made by the retry.
func TestRetryRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		f.load = func() (*model.Snapshot, error) {
			s := snapshot()
			s.Services[0].Ports[0].Port = 81
			return s, nil
		}
		f.kernel.breakWith(unix.ENOMEM) // nothing has changed in the kernel
		f.agent.Drifted(scratch("nft"))
		f.agent.Changed()
		time.Sleep(settling)
		synctest.Wait()
		if last := (*syncs)[len(*syncs)-1]; last.Err == nil || last.Compared {
			t.Fatalf("%+v", last)
		}
		f.kernel.breakWith(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := (*syncs)[len(*syncs)-1]; last.Err != nil || !last.Compared || len(last.Interventions) != 1 {
			t.Errorf("%+v", last)
		}
	})
}

// TestFightingControllers: another program writes elements ten times a second for an hour. The
// distance of repairs grows to a minute, and after some quiet the next one comes
// immediate again.
func TestFightingControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, syncs := drifted()
		f.start(t)
		start := time.Now()
		for time.Since(start) < time.Hour-time.Minute {
			f.agent.Drifted(scratch("fighter"))
			f.pass(100 * time.Millisecond)
		}
		f.pass(time.Minute)
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
		f.pass(quiet + time.Minute)
		n := len(*syncs)
		f.agent.Drifted(scratch("fighter"))
		f.pass(settling)
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
			f.agent.Drifted(scratch("fighter"))
			f.pass(5 * time.Second)
		}
		f.agent.Drifted(scratch("fighter"))
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
		f.pass(maxPause)
		last := (*syncs)[len(*syncs)-1]
		if last.Err == nil || len(last.Interventions) == 0 {
			t.Fatalf("%+v", last)
		}
		f.kernel.breakWith(nil)
		f.pass(DefaultSyncPeriod)
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
		f.pass(10 * time.Minute)
		if n := strings.Count(f.log.String(), "belongs to process 7"); n != 1 {
			t.Errorf("said %d times: %s", n, f.log)
		}
		f.kernel.breakWith(nil)
		f.pass(shortRetry)
		if last := (*syncs)[len(*syncs)-1]; last.Err != nil {
			t.Errorf("a second after the owner has gone: %v", last.Err)
		}
		f.kernel.breakWith(&kernel.OwnedError{Table: "ip nftproxy"})
	})
}
