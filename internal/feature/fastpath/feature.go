// Package fastpath moves established connections of Services past the rules.
package fastpath

import (
	"context"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	node := &n.Config.Node
	if node.FastPath.Level == model.FastPathOff {
		return nil
	}
	return manager{fastpath.New(fastpath.Config{
		Takes:  func(r *model.Route) bool { return node.NoFastPath(r) == nil },
		Tested: fastpath.Tested, Hardware: node.FastPath.Level == model.FastPathHardware, Shared: n.Config.Own.NoTableOwner, Log: n.Log,
	})}
}

// Prepare implements [feature.Preparer]: it tests the kernel while this process may make network namespaces, for the one
// that serves and may not.
func (Kind) Prepare(ctx context.Context, c *config.Config, log *slog.Logger) {
	if c.Node.FastPath.Level == model.FastPathOff {
		return
	}
	if err := fastpath.Test(ctx); err != nil {
		log.Warn("the fast path will stay off: this kernel did not pass the test of it", "error", err)
	}
}

// manager is the feature.
type manager struct{ *fastpath.Manager }

// FollowSync implements [feature.Observer].
func (m manager) FollowSync(s *feature.Sync) {
	if s.Err == nil {
		m.Change(s.Routes)
	}
}

// Problems implements [feature.Reporter].
func (m manager) Problems(time.Time) []model.Notice {
	if err := m.State().Err; err != nil {
		return feature.OfMachine(model.NoFastPath, err.Error())
	}
	return nil
}
