package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// followDrains follows the file with drained endpoints. A node may have no watch left for
// it, which keeps nothing from being served.
func (d *Daemon) followDrains() {
	path := d.Config.Own.DrainFile
	if path == "" {
		return
	}
	watcher, err := files.NewWatcher(path) // before the file is read, so that no change is lost
	watch := func(context.Context, func()) error { return err }
	if err == nil {
		watch = watcher.Run
	}
	d.drains = drain.Follow(drain.File{Path: path, State: d.StateDirectory}, watch, d.Log)
}
