package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// lookAgain is the time until the second removal: a kube-proxy that was shutting
// down may have written its rules once more.
const lookAgain = time.Minute

// successor removes what kube-proxy left, once nftproxy's rules are active
// (12.61).
type successor struct {
	remove func(context.Context) ([]string, error)
	log    *slog.Logger
	active chan struct{} // closed after the first successful sync
	once   sync.Once
}

func newSuccessor(m takeover.Marker, log *slog.Logger) *successor {
	remove := func(ctx context.Context) ([]string, error) { return takeover.Remove(ctx, m) }
	return &successor{remove: remove, log: log, active: make(chan struct{})}
}

// observe observes syncs.
func (s *successor) observe(sync *agent.Sync) {
	if sync.Err == nil {
		s.once.Do(func() { close(s.active) })
	}
}

// run removes twice, unless ctx ends before.
func (s *successor) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.active:
	}
	s.takeOver(ctx, slog.LevelInfo, "took over from kube-proxy")
	select {
	case <-ctx.Done():
		return
	case <-time.After(lookAgain):
	}
	s.takeOver(ctx, slog.LevelWarn, "kube-proxy has written its rules again; stop it on this node")
}

func (s *successor) takeOver(ctx context.Context, level slog.Level, message string) {
	removed, err := s.remove(ctx)
	if len(removed) > 0 {
		s.log.Log(ctx, level, message, "removed", removed)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("something of kube-proxy is left", "error", err)
	}
}
