package source

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Source is where the objects come from: a [cluster.Cluster], or files that are followed
// ([files.Follow]).
type Source interface {
	// String names the source in status.
	String() string
	// Run follows the source until ctx ends, and calls changed whenever Load has
	// something new. It is called once, before the Await methods.
	Run(ctx context.Context, changed func()) error
	// AwaitNode returns when the Node is known as far as the start depends on it
	// (12.45 to 12.47).
	AwaitNode(ctx context.Context) error
	// Await returns when Load may be called.
	Await(ctx context.Context) error
	// Load returns the changes since the last call. An update beside an error has the
	// changes that do not depend on the unreadable part.
	Load() (*model.Update, error)
	// Lookup returns the present states of these Services, or of all if names is nil,
	// without those that the source does not have. Load has been called before.
	Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState
	// Node returns the Node as it was seen last, or nil.
	Node() *model.Node
	// State reports whether the source can be used now. It is safe for concurrent
	// use.
	State() State
}

// Wait waits for some time. It returns false if ctx ends before.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
