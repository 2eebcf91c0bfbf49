package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// own prevents other programs from changing the rules, if the kernel supports that and
// the configuration allows it. It claims the rules of an earlier run immediately: the
// first sync may take long. It returns the record of these rules, if they are known; where
// other programs can change them, [work.watch] has the last word on it.
func (d *Daemon) own(rules *kernel.Conn) (owns bool, resume *agent.Record, err error) {
	last := d.lastRecord(rules)
	if d.Config.Own.NoTableOwner {
		return false, last, nil
	}
	if owns, err = rules.Own(); err != nil {
		return false, nil, err
	}
	if !owns {
		d.Log.Info("this kernel does not support persistent tables with an owner (6.9 does): changes of the rules by other programs are repaired")
		return false, last, nil
	}
	if last != nil {
		unchanged, err := rules.Reclaim(last.Generation)
		if unchanged {
			return true, last, nil
		}
		d.unused(err)
	}
	if _, err := rules.Claim(); err != nil {
		d.Log.Debug("tables are not claimed yet; the first sync tries again", "error", err)
	}
	return true, nil, nil
}

// guard reports to the agent what other programs do to the rules.
type guard struct {
	*kernel.Watcher
	stopping context.CancelFunc // ends the pause after a failure
	ended    chan struct{}      // closed when nothing is reported any more
	err      error              // why nothing is reported, at the end
}

// watchAgain is how long after a failure the watch is opened again.
const watchAgain = 10 * time.Second

// watch starts a guard, which is nil if that fails. If no program has made a transaction since
// the record of the last run, the agent goes on from there.
func (w *work) watch(rules *kernel.Conn) {
	watcher, err := kernel.Watch(rules)
	if err != nil {
		w.agent.Resume = nil
		w.unguarded(err)
		return
	}
	ctx, stopping := context.WithCancel(context.Background())
	w.watched = &guard{Watcher: watcher, stopping: stopping, ended: make(chan struct{})}
	if r := w.agent.Resume; r != nil {
		if generation, err := rules.Generation(); err != nil || generation != r.Generation {
			w.agent.Resume = nil
			w.unused(err)
		}
	}
	go func() {
		defer close(w.watched.ended)
		w.watched.err = forwardReports(ctx, watcher.Next, w.agent.Drifted, w.unguarded)
	}()
}

// forwardReports passes interventions on until next says that it was stopped. It calls failed for the first error of
// several, and tries again until ctx ends: then it returns the last one.
func forwardReports(ctx context.Context, next func() (kernel.Intervention, error), drifted func(kernel.Intervention), failed func(error)) error {
	for works := true; ; {
		i, err := next()
		switch {
		case errors.Is(err, kernel.ErrStopped):
			return nil
		case err == nil:
			works = true
			drifted(i)
			continue
		case works:
			works = false
			failed(err)
		}
		if !parallel.Wait(ctx, watchAgain) {
			return err
		}
	}
}

// stop ends the reports.
func (g *guard) stop() error {
	g.stopping()
	g.Stop()
	<-g.ended
	return g.err
}

// end ends the watch.
func (g *guard) end() {
	_ = g.stop() // was logged
	_ = g.Close()
}

func (w *work) unguarded(err error) {
	w.Log.Error("changes of the rules by other programs are found by the hourly comparison only", "error", err)
}
