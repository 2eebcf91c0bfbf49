package daemon

import (
	"context"
	"errors"
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

	mu    sync.Mutex
	marks takeover.Marks // that the last removal has left
}

func newKubeProxyCleanup(m takeover.Marker, log *slog.Logger) *kubeProxyCleanup {
	s := &kubeProxyCleanup{log: log, active: make(chan struct{})}
	s.remove = func(ctx context.Context) (removed []string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		removed, err = takeover.Remove(ctx, m)
		var failure error
		s.marks, failure = takeover.ReadMarks()
		return removed, errors.Join(err, failure)
	}
	return s
}

func (s *kubeProxyCleanup) observe(sync *agent.Sync) {
	if sync.Err == nil {
		s.once.Do(func() { close(s.active) })
	}
	if sync.Err == nil && sync.Compared {
		go s.restore()
	}
}

// restore makes markers again that another program has removed.
func (s *kubeProxyCleanup) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	restored, err := s.marks.Restore()
	if len(restored) > 0 {
		s.log.Warn("another program has removed what stands for kube-proxy's rules: it is there again", "restored", restored)
	}
	if err != nil {
		s.log.Error("what stands for kube-proxy's rules cannot be restored", "error", err)
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
