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
	return manager{fastpath.New(fastpath.Config{Node: node, Shared: n.Config.Own.NoTableOwner, Log: n.Log})}
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

// Leaves implements [feature.Leaver].
func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "fast path test", What: "the empty table `inet nftproxy-fast-path-tested`, left by `run --init-only --fast-path`",
			Mark:     "its name",
			Restored: "by the next `run --init-only`",
			Removed:  "a failed test; `cleanup`",
			Writers:  []string{"internal/fastpath/tested.go"}, Remove: removeWith("the result of the test for --fast-path", fastpath.RemoveMarker),
		},
		{
			Name: "fast path", What: "the table `inet nftproxy-fast-path` of a process that was killed, with `--no-table-owner`: otherwise the kernel removes it with the process ([fast path](fast-path.md))",
			Mark:     "its name",
			Restored: "replaced at the start",
			Removed:  "the end of the process; the next start; `cleanup`",
			Writers:  []string{"internal/fastpath/table.go"}, Remove: removeWith("table inet "+fastpath.TableName, fastpath.RemoveTable),
		},
	}
}

// removeWith returns the function of a leftover that another one removes.
func removeWith(what string, remove func() (bool, error)) func(feature.Scope) ([]string, error) {
	return func(feature.Scope) ([]string, error) {
		if removed, err := remove(); !removed || err != nil {
			return nil, err
		}
		return []string{what}, nil
	}
}
