package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/source"
)

// slowSource knows its Node late, and that it cannot be used.
type slowSource struct {
	source.Source
	ready chan struct{}
}

var errUnusable = errors.New("unusable")

func (s slowSource) AwaitNode(context.Context) error {
	<-s.ready
	return errUnusable
}

// TestSlowStart: a start that takes long says what it waits for, less and less often (13.24).
func TestSlowStart(t *testing.T) {
	for takes, lines := range map[time.Duration]int{quietTime - 1: 0, quietTime + 1: 1, 3*quietTime - 1: 1, 3*quietTime + 1: 2, time.Minute: 3} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				ready := make(chan struct{})
				time.AfterFunc(takes, func() { close(ready) })
				d := &Daemon{Source: slowSource{ready: ready}, Log: slog.New(slog.NewTextHandler(&log, nil))}
				if _, err := d.prepare(t.Context()); !errors.Is(err, errUnusable) {
					t.Errorf("got %v, want %v", err, errUnusable)
				}
				synctest.Wait()
				if n := strings.Count(log.String(), `msg="the start takes long" waitsFor="the Node" longerThan=`); n != lines {
					t.Errorf("got %d lines, want %d:\n%s", n, lines, log.String())
				}
			})
		})
	}
}
