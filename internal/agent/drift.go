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
	// firstPause passes at least between a repair and the second one; it
	// doubles with each that follows, up to maxPause: whoever writes to our
	// tables all the time costs a comparison of everything once in maxPause.
	firstPause = time.Second
	maxPause   = time.Minute
	// quiet is the time without an intervention after which the next one is
	// repaired at once again.
	quiet = 5 * time.Minute
	// maxInterventions is how many interventions one sync names.
	maxInterventions = 10
)

// drift is what others have done to our tables and is not repaired yet.
type drift struct {
	told chan struct{}

	mu      sync.Mutex
	waiting []kernel.Intervention

	last  time.Time // when the last repair was due
	pause time.Duration
}

// Drifted tells the agent that somebody else has written to our tables. It does
// not block, and is safe for concurrent use.
func (a *Agent) Drifted(i kernel.Intervention) {
	d := &a.drift
	d.mu.Lock()
	if len(d.waiting) < maxInterventions {
		d.waiting = append(d.waiting, i)
	}
	d.mu.Unlock()
	select {
	case d.told <- struct{}{}:
	default: // one is waiting already
	}
}

// take returns what a comparison that begins now repairs.
func (d *drift) take() []kernel.Intervention {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.waiting
	d.waiting = nil
	return out
}

// restore puts back what could not be repaired.
func (d *drift) restore(i []kernel.Intervention) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append(i, d.waiting...)
	d.waiting = all[:min(len(all), maxInterventions)]
}

// pending tells whether something is to be repaired.
func (d *drift) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}

// wait returns how long the next repair has to wait, and counts it.
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
	if due.Before(now) {
		due = now
	}
	d.last = due
	return due.Sub(now)
}

// logInterventions says who did what, and what it took to repair it. That may
// be nothing: it made no difference, or a change of the source came before.
func (a *Agent) logInterventions(s *Sync) {
	level := slog.LevelWarn
	if s.Plan.Empty() {
		level = slog.LevelInfo
	}
	for _, i := range s.Interventions {
		if i.Missed {
			a.Log.Log(context.Background(), level, "not everything that others did to rules could be followed; all were compared")
			continue
		}
		a.Log.Log(context.Background(), level, "our rules were changed by another process",
			"process", i.By.Name, "pid", i.By.PID, "objects", i.Counts, "first", strings.Join(i.Touched, "; "))
	}
	a.Log.Log(context.Background(), level, "rules repaired", "changes", len(s.Plan.Changes))
}

// ownerPatience passes at most before a sync is tried again that failed because
// another process owns our tables: it is asked for often when that process
// ends.
const ownerPatience = time.Second

// patience returns how long to wait after a failed sync, where wait is usual.
func (a *Agent) patience(wait time.Duration) time.Duration {
	if a.owner != nil {
		return min(wait, ownerPatience)
	}
	return wait
}

// logError reports a failed sync; once, while another process owns our tables.
func (a *Agent) logError(err error) {
	before := a.owner
	a.owner = nil
	if errors.As(err, &a.owner) && before != nil && *before == *a.owner {
		a.Log.Debug("rules cannot be applied", "error", err)
		return
	}
	a.Log.Error("rules cannot be applied; they stay as they are", "error", err)
}
