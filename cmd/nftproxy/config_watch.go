package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/source"
)

// configWatch waits for a configuration file with another, usable content.
type configWatch struct {
	file *config.File
	// load returns an error if the process could not start with the file as it
	// is now.
	load     func() error
	log      *slog.Logger
	rejected string // the last error that was logged
}

// watchConfig returns a function that runs until ctx ends, or until the file has
// another content than was read, which is an error: the process ends, and its
// supervisor starts it with the new one. A content that the process could not
// start with is logged and changes nothing (12.50).
func watchConfig(file *config.File, load func() error, log *slog.Logger) (func(context.Context) error, error) {
	watcher, err := (&source.Files{Paths: []string{file.Path}}).NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &configWatch{file: file, load: load, log: log}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		replaced := w.replaced() // before the watcher was there
		if replaced {
			return errChanged(file)
		}
		err := watcher.Run(ctx, func() {
			if replaced = replaced || w.replaced(); replaced {
				cancel()
			}
		})
		if replaced {
			return errChanged(file)
		}
		return err
	}, nil
}

// replaced reports whether the file has another content, and one to start with.
func (w *configWatch) replaced() bool {
	if !differs(w.file) {
		w.rejected = ""
		return false
	}
	err := w.load()
	if err == nil {
		return true
	}
	if message := err.Error(); message != w.rejected && w.file.Changed() { // and is not gone
		w.rejected = message
		w.log.Error("the configuration file has changed and cannot be used: going on with the configuration of the start", "error", err)
	}
	return false
}

// writeTime is how long a program may be at writing the file: it is truncated
// first, which is no other content.
const writeTime = 100 * time.Millisecond

// differs reports whether a file has another content, and keeps it for a moment.
func differs(file *config.File) bool {
	if !file.Changed() {
		return false
	}
	time.Sleep(writeTime)
	return file.Changed()
}

func errChanged(file *config.File) error {
	return fmt.Errorf("%s has changed: ending, so that the next start reads it", file.Path)
}
