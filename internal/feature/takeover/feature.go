// Package takeover removes what kube-proxy has left on a node, once the rules are active.
package takeover

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// secondRemoval is the time until the second removal: a kube-proxy that was shutting
// down may have written its rules once more.
const secondRemoval = time.Minute

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	own := &n.Config.Own
	if !n.Cluster || !own.TakeOver || n.Config.Node.BesideAnother { // (12.61)
		return nil
	}
	m := takeover.MarkReplaced
	if own.AnnounceNFTables {
		m = takeover.MarkAlways
	}
	return newCleanup(m, n.Log)
}

// cleanup removes kube-proxy's leftovers after the first successful sync (12.61).
type cleanup struct {
	marker takeover.Marker
	log    *slog.Logger
	active chan struct{} // closed after the first successful sync
	once   sync.Once

	mu    sync.Mutex
	marks takeover.Marks // that the last removal has left
}

func newCleanup(m takeover.Marker, log *slog.Logger) *cleanup {
	return &cleanup{marker: m, log: log, active: make(chan struct{})}
}

func (s *cleanup) remove(ctx context.Context) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed, err = takeover.Remove(ctx, s.marker)
	var failure error
	s.marks, failure = takeover.ReadMarks()
	return removed, errors.Join(err, failure)
}

// FollowSync implements [feature.Observer]: the files alone do not replace kube-proxy.
func (s *cleanup) FollowSync(sync *feature.Sync) {
	if !sync.Complete {
		return
	}
	if sync.Err == nil {
		s.once.Do(func() { close(s.active) })
	}
	if sync.Err == nil && sync.Compared {
		go s.restore()
	}
}

// restore makes markers again that another program has removed.
func (s *cleanup) restore() {
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

// Run implements [feature.Runner].
func (s *cleanup) Run(ctx context.Context) { s.removeTwice(ctx, s.remove) }

// removeTwice calls remove after the first sync and once more, unless ctx ends before.
func (s *cleanup) removeTwice(ctx context.Context, remove func(context.Context) ([]string, error)) {
	takeOver := func(level slog.Level, message string) {
		removed, err := remove(ctx)
		if len(removed) > 0 {
			s.log.Log(ctx, level, message, "removed", removed)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Error("cannot remove all leftovers of kube-proxy", "error", err)
		}
	}
	select {
	case <-ctx.Done():
		return
	case <-s.active:
	}
	takeOver(slog.LevelInfo, "took over from kube-proxy")
	if parallel.Wait(ctx, secondRemoval) {
		takeOver(slog.LevelWarn, "kube-proxy has written its rules again; stop it on this node")
	}
}

// Leaves implements [feature.Leaver].
func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "takeover marker", What: "the tables `kube-proxy` with an empty chain, for Calico ([12.62](behaviour.md#s12.62))",
			Mark:     "the name of the chain, `served-by-nftproxy`",
			Restored: "every hour, and when rules are repaired: made again, unless there is another table of that name. One that is removed while nftproxy is down is made again with `--announce-nftables` only",
			Removed:  "`cleanup`; a kube-proxy that uses the table again keeps it, without the chain",
			Writers:  []string{"internal/takeover/marker.go"}, Remove: func(feature.Scope) ([]string, error) { return takeover.RemoveMarkers() },
		},
	}
}
