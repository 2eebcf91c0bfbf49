package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/kernel"
)

// own keeps other programs from changing the rules, if the kernel supports that
// and the user does not want to edit them. It claims the rules of an earlier run
// immediately: it may take long until the source is known.
func (d *Daemon) own(rules *kernel.Conn) (bool, error) {
	if d.Config.Own.NoTableOwner {
		return false, nil
	}
	owns, err := rules.Own()
	if err != nil {
		return false, err
	}
	if !owns {
		d.Log.Info("tables of this kernel do not outlive their owner (since 6.9 they can): other programs can change the rules, which are then repaired")
		return false, nil
	}
	if _, err := rules.Claim(); err != nil {
		d.Log.Debug("tables are not claimed yet; the first sync tries again", "error", err)
	}
	return true, nil
}

// watch reports to the agent what other programs do to the rules, until ctx ends.
func (w *work) watch(ctx context.Context, rules *kernel.Conn) {
	watcher, err := kernel.Watch(rules)
	if err != nil {
		w.unguarded(err)
		return
	}
	context.AfterFunc(ctx, func() { _ = watcher.Close() })
	go func() {
		for {
			i, err := watcher.Next()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				w.unguarded(err)
				return
			}
			w.agent.Drifted(i)
		}
	}()
}

func (w *work) unguarded(err error) {
	w.Log.Error("changes of the rules by other programs are found by the hourly comparison only", "error", err)
}
