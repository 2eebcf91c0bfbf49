package daemon

import (
	"errors"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/kernel"
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
	ended chan struct{} // closed when nothing is reported any more
	err   error         // why it has ended early
}

// watch starts a guard, which is nil if that fails. If no program has made a transaction since
// the record of the last run, the agent goes on from there.
func (w *work) watch(rules *kernel.Conn) {
	watcher, err := kernel.Watch(rules)
	if err != nil {
		w.agent.Resume = nil
		w.unguarded(err)
		return
	}
	w.watched = &guard{Watcher: watcher, ended: make(chan struct{})}
	if r := w.agent.Resume; r != nil {
		if generation, err := rules.Generation(); err != nil || generation != r.Generation {
			w.agent.Resume = nil
			w.unused(err)
		}
	}
	go func() {
		defer close(w.watched.ended)
		for {
			i, err := watcher.Next()
			switch {
			case errors.Is(err, kernel.ErrStopped):
				return
			case err != nil:
				w.watched.err = err
				w.unguarded(err)
				return
			}
			w.agent.Drifted(i)
		}
	}()
}

// stop ends the reports.
func (g *guard) stop() error {
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
