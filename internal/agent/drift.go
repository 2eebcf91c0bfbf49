package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/plan"
)

const (
	// settling is the time between an intervention and its repair. Another nftproxy
	// makes a change in several transactions: additions of the first one must not be
	// removed before the second one refers to them.
	settling = 10 * time.Millisecond
	// urgentPause is the longest pause between two repairs when connections fail until
	// the second one: half of the second in which the rules are back.
	urgentPause = 500 * time.Millisecond
	// firstPause is the minimum pause before the second repair of single elements. It
	// doubles with each further one, up to maxPause: a program that writes to our tables
	// all the time causes one comparison in maxPause.
	firstPause = time.Second
	maxPause   = time.Minute
	// quiet is the time without an intervention after which the next repair is
	// immediate again.
	quiet = 5 * time.Minute
	// maxInterventions is how many interventions one sync reports.
	maxInterventions = 10
)

// drift holds the changes of our tables by other programs that await repair.
type drift struct {
	noticed chan struct{}

	mu      sync.Mutex
	waiting []kernel.Intervention

	// rivals means that the last repair after missed interventions also undid what
	// another program had added: another daemon may be at work, with other input.
	rivals bool

	due   time.Time // of the next repair; zero: none is scheduled
	last  time.Time // when the last repair was due
	pause time.Duration
}

// Drifted notifies the agent that another program has written to our tables. It
// does not block and is safe for concurrent use.
func (a *Agent) Drifted(i kernel.Intervention) {
	d := &a.drift
	d.add(i)
	parallel.Signal(d.noticed)
}

// add appends interventions. Beyond the limit an urgent one replaces the last one.
func (d *drift) add(all ...kernel.Intervention) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range all {
		switch {
		case len(d.waiting) < maxInterventions:
			d.waiting = append(d.waiting, i)
		case i.Urgent:
			d.waiting[maxInterventions-1] = i
		}
	}
}

func (d *drift) takeWaiting() []kernel.Intervention {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.waiting
	d.waiting = nil
	return out
}

func (d *drift) isPending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}

// isUrgent reports whether an intervention awaits repair until which connections fail. A
// missed one may be of that kind, but two daemons with different input also miss what the
// other one does.
func (d *drift) isUrgent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.waiting, func(i kernel.Intervention) bool { return i.Urgent || i.Missed && !d.rivals })
}

// scheduleRepair returns the pause before the next repair. If one is scheduled already, an
// urgent intervention can only make it earlier.
func (d *drift) scheduleRepair(now time.Time) time.Duration {
	due := d.due
	switch {
	case d.isUrgent():
		due = d.last.Add(urgentPause)
	case due.IsZero():
		due = d.last.Add(d.nextPause(now))
	}
	if earliest := now.Add(settling); due.Before(earliest) {
		due = earliest
	}
	if d.due.IsZero() || due.Before(d.due) {
		d.due = due
	}
	return d.due.Sub(now)
}

func (d *drift) nextPause(now time.Time) time.Duration {
	switch {
	case d.last.IsZero() || now.Sub(d.last) > quiet:
		d.pause = 0
	case d.pause == 0:
		d.pause = firstPause
	default:
		d.pause = min(2*d.pause, maxPause)
	}
	return d.pause
}

// beginRepair ends the schedule. It reports whether a repair is still needed: another sync may
// have made it.
func (d *drift) beginRepair() bool {
	d.last, d.due = d.due, time.Time{}
	return d.isPending()
}

// noteRepair learns from a repair whether another daemon writes to the tables.
func (d *drift) noteRepair(s *Sync) {
	if !slices.ContainsFunc(s.Interventions, func(i kernel.Intervention) bool { return i.Missed }) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rivals = s.Plan.Count(plan.Replace)+s.Plan.Count(plan.Delete) > 0
}
