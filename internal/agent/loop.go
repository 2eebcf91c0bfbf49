package agent

import (
	"context"
	"time"
)

const (
	// syncCheck is the longest time without a comparison of everything (13.10).
	syncCheck = time.Hour
	// firstRetry passes after a failed sync before the next attempt; it doubles
	// with each, up to SyncPeriod.
	firstRetry = 100 * time.Millisecond
	// addressPause passes at least between the end of a sync and one that
	// changes of addresses ask for: many pods may start together.
	addressPause = 100 * time.Millisecond
)

// Run applies the source at once and again whenever it has changed, until ctx
// ends. The rules stay in place then. A failed commit is tried again. A source
// that cannot be used at the start is an error: nothing is there yet that could
// go on working.
func (a *Agent) Run(ctx context.Context) error {
	if a.Await != nil {
		if err := a.Await(ctx); err != nil {
			return err
		}
	}
	a.begin()
	a.changed.Store(false)
	var err error
	if a.update, err = a.Load(); err != nil {
		return err
	}
	affinity := time.NewTicker(affinityCheck)
	defer affinity.Stop()
	defer a.affinity.wait()
	l := &loop{Agent: a, check: time.NewTimer(syncCheck), wait: min(firstRetry, a.SyncPeriod)}
	defer l.check.Stop()
	for l.run(Start); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-affinity.C:
			a.checkAffinity()
		case <-a.affinity.rested:
			a.affinity.rested = nil
			a.sweep()
		case s := <-a.affinity.read:
			a.release(s)
		case <-l.retry:
			l.run(Retry)
		case <-l.check.C:
			l.checkAll()
		case <-a.drift.told:
			if l.repair == nil {
				l.repair = time.After(a.drift.wait(time.Now()))
			}
		case <-l.repair:
			if l.repair = nil; a.drift.pending() { // else another sync has repaired it
				l.run(Drift)
			}
		case <-a.asked:
			l.plan()
		case <-l.due:
			l.serve()
		}
	}
}

// loop has the timers of [Agent.Run]; a nil channel is not set.
type loop struct {
	*Agent
	retry, due, repair <-chan time.Time
	check              *time.Timer
	wait               time.Duration // before the next attempt after a failure
	last               time.Time     // end of the last sync
	dueAt              time.Time
}

// run syncs. It schedules the next attempt after a failure, else the next check.
func (l *loop) run(cause Cause) {
	ok := l.sync(cause)
	l.last, l.retry = time.Now(), nil
	if !ok {
		l.retry = time.After(max(l.patience(l.wait), l.MinSyncPeriod))
		l.wait = min(2*l.wait, l.SyncPeriod)
		return
	}
	l.check.Reset(syncCheck - time.Since(l.compared))
}

// checkAll compares everything (13.10).
func (l *loop) checkAll() {
	if l.Interfaces != nil {
		l.Interfaces.Expire()
	}
	l.run(Check)
}

// plan schedules the sync that was asked for.
func (l *loop) plan() {
	pause := l.MinSyncPeriod
	if !l.changed.Load() {
		pause = max(pause, addressPause)
	}
	if at := l.last.Add(pause); l.due == nil || at.Before(l.dueAt) {
		l.due, l.dueAt = time.After(time.Until(at)), at
	}
}

// serve runs the sync that was asked for.
func (l *loop) serve() {
	l.due = nil
	l.begin()
	moved := l.moved.Swap(false)
	if l.changed.Swap(false) {
		next, err := l.Load()
		switch {
		case err == nil:
			l.update = l.update.Then(next)
		default:
			l.Log.Error("source cannot be used; the rules stay as they are", "error", err)
			if !moved {
				l.end(nil) // it is the source that has to change now
				return
			}
		}
	}
	l.wait = min(firstRetry, l.SyncPeriod)
	l.run(Change)
}

// begin takes the requests so far as those that the next sync serves.
func (a *Agent) begin() {
	select {
	case <-a.asked:
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served.IsZero() {
		a.served = a.state.Pending
	}
	a.state.Pending = time.Time{}
}

// end strikes out the requests that were served, unless that failed.
func (a *Agent) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.served = time.Time{}
	}
}
