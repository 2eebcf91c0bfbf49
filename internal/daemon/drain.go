package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// followDrains follows the file with drained endpoints and changes of servers, which are for files. A node may have
// no watch left for it, which keeps nothing from being served.
func (d *Daemon) followDrains() {
	file := drain.File{Path: d.Config.Own.DrainFile, State: d.StateDirectory}
	if older := d.Config.Own.ChangesFile; d.hasFiles() && file.Path == "" {
		file.Path = older
	} else if d.hasFiles() {
		file.Older = older
	}
	if file.Path == "" {
		return
	}
	watcher, err := files.NewWatcher(file.Path) // before the file is read, so that no change is lost
	watch := func(context.Context, func()) error { return err }
	if err == nil {
		watch = watcher.Run
	}
	d.drains = drain.Follow(file, watch, d.Log)
}
