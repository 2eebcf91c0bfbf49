package agent

import (
	"context"
	"time"
)

const (
	// syncCheck is the longest time without a comparison (13.10).
	syncCheck = time.Hour
	// firstRetry is the pause after a failed sync. It doubles with each failure, up
	// to SyncPeriod, or to shortRetry while another process owns our tables, or while
	// connections fail for want of the rules that another program has removed.
	firstRetry = 100 * time.Millisecond
	shortRetry = time.Second
	// addressPause is the minimum pause before a sync for changed addresses: many
	// pods may start together.
	addressPause = 100 * time.Millisecond
)

// Run applies the source, and every change of it, until ctx ends. The rules stay
// in place then. Failed syncs are retried. If the source is unusable at the start,
// Run returns an error: there are no rules yet to keep.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.Source.Await(ctx); err != nil {
		return err
	}
	a.beginSync()
	a.changed.Store(false)
	var err error
	if a.pending.update, err = a.firstLoad(); err != nil {
		return err
	}
	defer a.affinity.running.Wait()
	l := a.newLoop()
	defer l.check.Stop()
	if w := a.Watchdog; w != nil && w.BeatPeriod() > 0 {
		beats := time.NewTicker(w.BeatPeriod())
		defer beats.Stop()
		l.beats = beats.C
	}
	for l.run(Start); l.serveNext(ctx); {
	}
	return nil
}

func (c *Config) reportAlive() {
	if c.Watchdog != nil {
		c.Watchdog.Beat()
	}
}

// loop has the timers of [Agent.Run]; a nil channel is not set. At rest only check
// is, crowding while a Service has session affinity, and beats under a watchdog.
type loop struct {
	*Agent
	retry, due, repair, crowding, beats <-chan time.Time

	check    *time.Timer
	checked  time.Time     // the comparison that check follows; zero: it has fired
	wait     time.Duration // before the next retry
	last     time.Time     // end of the last sync
	dueAt    time.Time
	unusable error // of the last attempt to load the source
}

func (a *Agent) newLoop() *loop {
	return &loop{Agent: a, check: time.NewTimer(syncCheck), wait: min(firstRetry, a.SyncPeriod)}
}

func (l *loop) serveNext(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.beats:
		l.reportAlive()
	case <-l.crowding:
		l.crowding = nil
		l.affinity.checkUse()
		l.watchAffinity()
	case <-l.affinity.rested:
		l.affinity.rested = nil
		l.affinity.startSweep()
	case s := <-l.affinity.read:
		l.affinity.release(s)
	case <-l.retry:
		l.run(Retry)
	case <-l.check.C:
		l.checkAll()
	case <-l.drift.noticed:
		l.repair = time.After(l.drift.scheduleRepair(time.Now()))
	case <-l.repair:
		if l.repair = nil; l.drift.beginRepair() {
			l.run(Drift)
		}
	case <-l.asked:
		l.scheduleSync()
	case <-l.due:
		l.serve()
	}
	return true
}

// run syncs, then schedules a retry after a failure, else the next check.
func (l *loop) run(cause Cause) {
	ok := l.sync(cause)
	l.last, l.retry = time.Now(), nil
	if !ok {
		wait := l.wait
		if l.log.owner != nil || l.drift.isUrgent() {
			wait = min(wait, shortRetry)
		}
		l.retry = time.After(max(wait, l.MinSyncPeriod))
		l.wait = min(2*l.wait, l.SyncPeriod)
		return
	}
	l.wait = min(firstRetry, l.SyncPeriod)
	if l.checked != l.compared { // not after each change: a timer that moves wakes a thread
		l.check.Reset(syncCheck - time.Since(l.compared))
		l.checked = l.compared
	}
	l.watchAffinity()
}

func (l *loop) watchAffinity() {
	if l.crowding == nil && l.rules.HasAffinity() {
		l.crowding = time.After(affinityCheck)
	}
}

func (l *loop) checkAll() {
	l.checked = time.Time{}
	if l.Interfaces != nil {
		l.Interfaces.Expire()
	}
	l.run(Check)
}

func (l *loop) scheduleSync() {
	pause := l.MinSyncPeriod
	switch {
	case !l.changed.Load():
		pause = max(pause, addressPause)
	case l.awaited.Load() > 0:
		pause = 0
	}
	at := l.last.Add(pause)
	switch wait := time.Until(at); {
	case l.due != nil && !at.Before(l.dueAt):
	case wait <= 0: // the rule: a timer would cost two more rounds of the scheduler
		l.serve()
	default:
		l.due, l.dueAt = time.After(wait), at
	}
}

func (l *loop) serve() {
	l.due = nil
	l.beginSync()
	moved := l.moved.Swap(false)
	if l.changed.Swap(false) {
		next, err := l.Source.Load()
		l.logSource(err)
		switch {
		case next != nil: // also what does not depend on the source, if that cannot be used
			l.pending.update = l.pending.update.Then(next)
		case !moved:
			l.endSync(nil) // a retry would not help
			return
		}
	}
	l.wait = min(firstRetry, l.SyncPeriod)
	l.run(Change)
}

// logSource logs when the source becomes unusable, for another reason, or usable
// again, even if its content is the same as before.
func (l *loop) logSource(err error) {
	before := l.unusable
	l.unusable = err
	switch {
	case err == nil && before != nil:
		l.Log.Info("source usable again")
	case err != nil && (before == nil || before.Error() != err.Error()):
		l.Log.Error("source cannot be used; the rules stay unchanged", "error", err)
	}
}
