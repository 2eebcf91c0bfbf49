package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
)

// guard keeps others from changing the rules. Where the kernel has no means for
// that, or the user wants to edit them, the agent hears of what others do until
// ctx ends.
func (w *work) guard(ctx context.Context, rules *apply.Conn, a *agent.Agent) error {
	if !w.Config.Own.NoTableOwner {
		owns, err := rules.Own()
		if err != nil {
			return err
		}
		if owns {
			w.applier.Claim = rules.Claim
			return nil
		}
		w.Log.Info("tables of this kernel do not outlive their owner (since 6.9 they can): other programs can change the rules, which are then repaired")
	}
	watcher, err := apply.Watch(rules)
	if err != nil {
		w.unguarded(err)
		return nil
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
	return nil
}

func (w *work) unguarded(err error) {
	w.Log.Error("what others do to the rules is not seen at once, but by the comparison after an hour without a change", "error", err)
}
