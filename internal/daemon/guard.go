package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// own keeps others from changing the rules, where the kernel has means for that
// and the user does not want to edit them. Rules of an earlier run are taken
// over at once: it may take long until the source is known.
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
		d.Log.Debug("tables are not taken over yet; the first sync tries again, and tells", "error", err)
	}
	return true, nil
}

// watch lets the agent hear of what others do to the rules until ctx ends.
func (w *work) watch(ctx context.Context, rules *kernel.Conn, a *agent.Agent) {
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
			a.Drifted(i)
		}
	}()
}

func (w *work) unguarded(err error) {
	w.Log.Error("what others do to the rules is not seen at once, but by the hourly comparison", "error", err)
}
