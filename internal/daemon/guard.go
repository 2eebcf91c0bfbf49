package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// own prevents other programs from changing the rules, if the kernel supports that and
// the configuration allows it. It claims the rules of an earlier run immediately: the
// first sync may take long. It returns the record of the rules that it has claimed, if they
// are known.
func (d *Daemon) own(rules *kernel.Conn) (owns bool, resume *agent.Record, err error) {
	if d.Config.Own.NoTableOwner {
		return false, nil, nil
	}
	if owns, err = rules.Own(); err != nil {
		return false, nil, err
	}
	if !owns {
		d.Log.Info("this kernel does not support persistent tables with an owner (6.9 does): changes of the rules by other programs are repaired")
		return false, nil, nil
	}
	if resume = d.reclaim(rules); resume != nil {
		return true, resume, nil
	}
	if _, err := rules.Claim(); err != nil {
		d.Log.Debug("tables are not claimed yet; the first sync tries again", "error", err)
	}
	return true, nil, nil
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
