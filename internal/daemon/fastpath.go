package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/model"
)

// newFastPath returns what moves established connections past the rules; nil: they stay.
func (w *work) newFastPath() *fastpath.Manager {
	if w.node.FastPath.Level == model.FastPathOff {
		return nil
	}
	return fastpath.New(fastpath.Config{
		Takes:  func(r *model.Route) bool { return w.node.NoFastPath(r) == nil },
		Tested: fastpath.Tested, Hardware: w.node.FastPath.Level == model.FastPathHardware, Shared: w.Config.Own.NoTableOwner, Log: w.Log,
	})
}

// testFastPath tests the kernel while this process may make network namespaces, for the one
// that serves and may not.
func (d *Daemon) testFastPath(ctx context.Context) {
	if d.Config.Node.FastPath.Level == model.FastPathOff {
		return
	}
	if err := fastpath.Test(ctx); err != nil {
		d.Log.Warn("the fast path will stay off: this kernel did not pass the test of it", "error", err)
	}
}
