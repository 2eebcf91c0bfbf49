package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
)

const (
	// settling is the time between an intervention and its repair. Another nftproxy
	// makes a change in several transactions: additions of the first one must not be
	// removed before the second one refers to them.
	settling = 10 * time.Millisecond
	// firstPause is the minimum pause before the second repair. It doubles with
	// each further one, up to maxPause: a program that writes to our tables all the
	// time causes one comparison in maxPause.
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

	last  time.Time // when the last repair was due
	pause time.Duration
}

// Drifted notifies the agent that another program has written to our tables. It
// does not block and is safe for concurrent use.
func (a *Agent) Drifted(i kernel.Intervention) {
	d := &a.drift
	d.mu.Lock()
	if len(d.waiting) < maxInterventions {
		d.waiting = append(d.waiting, i)
	}
	d.mu.Unlock()
	select {
	case d.noticed <- struct{}{}:
	default: // one is waiting already
	}
}

// take removes and returns the interventions that a comparison repairs.
func (d *drift) take() []kernel.Intervention {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.waiting
	d.waiting = nil
	return out
}

func (d *drift) restore(i []kernel.Intervention) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append(i, d.waiting...)
	d.waiting = all[:min(len(all), maxInterventions)]
}

// pending reports whether an intervention awaits repair.
func (d *drift) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}

// wait returns the pause before the next repair, and counts that repair.
func (d *drift) wait(now time.Time) time.Duration {
	switch {
	case d.last.IsZero() || now.Sub(d.last) > quiet:
		d.pause = 0
	case d.pause == 0:
		d.pause = firstPause
	default:
		d.pause = min(2*d.pause, maxPause)
	}
	due := d.last.Add(d.pause)
	if earliest := now.Add(settling); due.Before(earliest) {
		due = earliest
	}
	d.last = due
	return due.Sub(now)
}

// logInterventions logs which process did what, and the size of the repair. The
// repair is empty if an intervention made no difference or another sync was first.
func (a *Agent) logInterventions(s *Sync) {
	level := slog.LevelWarn
	if s.Plan.Empty() {
		level = slog.LevelInfo
	}
	for _, i := range s.Interventions {
		if i.Missed {
			a.Log.Log(context.Background(), level, "some changes of rules by other programs were missed; all rules were compared")
			continue
		}
		a.Log.Log(context.Background(), level, "our rules were changed by another process",
			"process", i.By.Name, "pid", i.By.PID, "objects", i.Counts, "first", strings.Join(i.Touched, "; "))
	}
	a.Log.Log(context.Background(), level, "rules repaired", "changes", len(s.Plan.Changes))
}

// logError logs a failed sync; while one process owns our tables, only once.
func (a *Agent) logError(err error) {
	before := a.owner
	a.owner = nil
	if errors.As(err, &a.owner) && before != nil && *before == *a.owner {
		a.Log.Debug("rules cannot be applied", "error", err)
		return
	}
	a.Log.Error("rules cannot be applied and stay unchanged", "error", err)
}
