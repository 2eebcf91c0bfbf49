package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// configWatch waits for new, usable content of a configuration file.
type configWatch struct {
	file     *config.File
	program  Program
	log      *slog.Logger
	watcher  *files.Watcher
	rejected string // the last error that was logged
}

// watchConfig returns a watch of the file.
func watchConfig(file *config.File, program Program, log *slog.Logger) (*configWatch, error) {
	watcher, err := files.NewWatcher(file.Path)
	return &configWatch{file: file, program: program, log: log, watcher: watcher}, err
}

// run watches until ctx ends, or until the file has new content, which is an error:
// the process ends, and its supervisor restarts it. Unusable content is logged and
// has no effect (12.50).
func (w *configWatch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replaced := w.replaced() // before the watch began
	if replaced {
		cancel()
	}
	err := w.watcher.Run(ctx, func() {
		if replaced = replaced || w.replaced(); replaced {
			cancel()
		}
	})
	if replaced {
		return fmt.Errorf("%s has changed: ending, so that the next start reads it", w.file.Path)
	}
	return err
}

// replaced reports whether the file has new, usable content.
func (w *configWatch) replaced() bool {
	if !differs(w.file) {
		w.rejected = ""
		return false
	}
	err := w.program.Usable()
	if err == nil {
		return true
	}
	if message := err.Error(); message != w.rejected && w.file.Changed() { // and still exists
		w.rejected = message
		w.log.Error("the configuration file has changed and cannot be used; the previous configuration stays in use", "error", err)
	}
	return false
}

// writeTime is how long a program may take to write the file after truncating it.
const writeTime = 100 * time.Millisecond

// differs reports whether a file has had other content for writeTime.
func differs(file *config.File) bool {
	if !file.Changed() {
		return false
	}
	time.Sleep(writeTime)
	return file.Changed()
}
