package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestBusyHours: 13.10, a comparison of everything comes an hour after the last
// one, however many changes there are.
func TestBusyHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		count := make(map[Cause]int)
		f.observe = append(f.observe, func(s *Sync) { count[s.Cause]++ })
		f.start(t)
		for range 24 * 60 {
			time.Sleep(time.Minute)
			f.agent.Changed()
			synctest.Wait()
		}
		if count[Check] != 24 || count[Change] != 24*60 {
			t.Errorf("in a day with a change each minute: %d checks, %d syncs for changes", count[Check], count[Change])
		}
	})
}

// day is what happens in a day on a node, by the minute.
type day struct {
	*machine
	t    *testing.T
	port uint16 // of the Service
}

func (d *day) minute(m int) {
	switch m {
	case 200:
		d.kernel.breakWith(errors.New("no memory"))
	case 210:
		d.kernel.breakWith(nil)
	case 300:
		d.fails(errors.New("too many open files"))
		d.have("192.0.2.1", "192.0.2.2")
		d.event("192.0.2.2")
	case 320:
		d.expect("192.0.2.1")
		d.fails(nil)
	case 325:
		d.expect("192.0.2.1 192.0.2.2")
	case 400: // the event is lost
		d.have("192.0.2.1", "192.0.2.3")
	case 461:
		d.expect("192.0.2.1 192.0.2.3")
	case 600:
		d.load = func() (*model.Snapshot, error) { return nil, errors.New("broken file") }
		d.have("192.0.2.4")
		d.event("192.0.2.4")
	case 601:
		d.expect("192.0.2.4")
	case 620:
		d.load = d.services
	}
	if m%3 == 0 {
		d.port++
		d.agent.Changed()
	}
	if m%7 == 0 { // a pod
		d.event("169.254.1.1")
		d.event("fe80::1")
	}
}

func (d *day) services() (*model.Snapshot, error) {
	s := snapshot()
	s.Services[0].Ports[0].Port = d.port
	return s, nil
}

func (d *day) expect(addresses string) {
	d.t.Helper()
	if got := d.nodePorts(); got != addresses {
		d.t.Errorf("NodePorts are served on %s, want %s", got, addresses)
	}
}

// TestDay goes through a day with a change every three minutes, pods, failures of
// the kernel, of the source and of listings, and a lost event. Everything is
// compared at the start, after a failed sync, and an hour after the last time,
// and never for another reason.
func TestDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &day{machine: newMachine("192.0.2.1"), t: t, port: 80}
		d.period, d.load = time.Second, d.services
		d.start(t)
		for m := range 24 * 60 {
			d.minute(m)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		failed, checks := false, 0
		last := d.syncs[0].Started
		for i, s := range d.syncs {
			if s.Compared != (i == 0 || failed || s.Err != nil || s.Cause == Check) {
				t.Errorf("sync %d, %v at %v: everything compared %t", i, s.Cause, s.Started, s.Compared)
			}
			if s.Cause == Check {
				checks++
			}
			failed = s.Err != nil
			if s.Compared && !failed {
				if since := s.Started.Sub(last); since > syncCheck {
					t.Errorf("%v without a comparison of everything", since)
				}
				last = s.Started
			}
		}
		if checks < 22 || checks > 24 {
			t.Errorf("%d checks in a day", checks)
		}
		if d.lists() > 24+60 {
			t.Errorf("addresses were listed %d times", d.lists())
		}
		if n := strings.Count(d.log.String(), "repaired"); n != checks {
			t.Errorf("%d of %d checks say that rules were repaired", n, checks)
		}
	})
}
