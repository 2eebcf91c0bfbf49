package main

import (
	"context"
	"fmt"

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
		changed := file.Changed() // before the watcher was there
		if changed {
			return errChanged(file)
		}
		err := watcher.Run(ctx, func() {
			if changed = changed || file.Changed(); changed {
				cancel()
			}
		})
		if changed {
			return errChanged(file)
		}
		return err
	}, nil
}

func errChanged(file *config.File) error {
	return fmt.Errorf("%s has changed: ending, so that the next start reads it", file.Path)
}
