package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// secondRemoval is the time until the second removal: a kube-proxy that was shutting
// down may have written its rules once more.
const secondRemoval = time.Minute

// kubeProxyCleanup removes kube-proxy's leftovers after the first successful sync (12.61).
type kubeProxyCleanup struct {
	remove func(context.Context) ([]string, error)
	log    *slog.Logger
	active chan struct{} // closed after the first successful sync
	once   sync.Once
}

func newKubeProxyCleanup(m takeover.Marker, log *slog.Logger) *kubeProxyCleanup {
	remove := func(ctx context.Context) ([]string, error) { return takeover.Remove(ctx, m) }
	return &kubeProxyCleanup{remove: remove, log: log, active: make(chan struct{})}
}

func (s *kubeProxyCleanup) observe(sync *agent.Sync) {
	if sync.Err == nil {
		s.once.Do(func() { close(s.active) })
	}
}

// replaced observes syncs for the cleanup: the files alone do not replace kube-proxy.
func (w *work) replaced(s *agent.Sync) {
	if w.Joined == nil || w.Joined.Complete() {
		w.takeover.observe(s)
	}
}

// run removes them twice, unless ctx ends before.
func (s *kubeProxyCleanup) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.active:
	}
	s.takeOver(ctx, slog.LevelInfo, "took over from kube-proxy")
	select {
	case <-ctx.Done():
		return
	case <-time.After(secondRemoval):
	}
	s.takeOver(ctx, slog.LevelWarn, "kube-proxy has written its rules again; stop it on this node")
}

func (s *kubeProxyCleanup) takeOver(ctx context.Context, level slog.Level, message string) {
	removed, err := s.remove(ctx)
	if len(removed) > 0 {
		s.log.Log(ctx, level, message, "removed", removed)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("cannot remove all leftovers of kube-proxy", "error", err)
	}
}
