package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/source"
)

// watchConfig returns a function that runs until ctx ends, or until the file has
// another content than was read, which is an error: the process ends, and its
// supervisor starts it with the new one (12.50).
func watchConfig(file *config.File) (func(context.Context) error, error) {
	watcher, err := (&source.Files{Paths: []string{file.Path}}).NewWatcher()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changed := differs(file) // before the watcher was there
		if changed {
			return errChanged(file)
		}
		err := watcher.Run(ctx, func() {
			if changed = changed || differs(file); changed {
				cancel()
			}
		})
		if changed {
			return errChanged(file)
		}
		return err
	}, nil
}

// writeTime is how long somebody may be at writing the file: it is cut to
// nothing first, which is no other content.
const writeTime = 100 * time.Millisecond

// differs tells whether a file has another content, and keeps it for a moment.
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
