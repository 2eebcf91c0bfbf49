// Package source is the interface between the sources of objects and the program.
//
// A [Source] gives the Services, endpoints and Nodes that are served, and says by its
// [State] whether it can be used now. [Edited] changes the state of Services from a source,
// for health checks and draining. The packages below are, from the bottom up:
//
//   - healthcheck: a value of YAML or JSON becomes a health check
//   - convert: objects of Kubernetes become values of the model
//   - balance: a Balance becomes objects of Kubernetes
//   - files: a source that reads YAML and JSON
//   - cluster: a source that follows an API server
//   - join: both, for the address of the API servers themselves
//
// Statement numbers such as 1.33 in comments refer to docs/behaviour.md.
package source

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Source is where the objects come from: a [cluster.Cluster], or files that are followed ([files.Follow]).
type Source interface {
	// String names the source in status.
	String() string
	// Run follows the source until ctx ends, and calls changed whenever Load has
	// something new. It is called once, before the Await methods.
	Run(ctx context.Context, changed func()) error
	// AwaitNode returns when the Node is known as far as the start depends on it (12.45 to 12.47).
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
	// State reports whether the source can be used now. It is safe for concurrent use.
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

// State reports whether a source can be used.
type State struct {
	// Err is why the source, or a part of it, cannot be used now; nil: it can. What was read before stays in use.
	Err error
	// Since is when the source became unusable, or usable again.
	Since time.Time
	// Warnings are about objects that are used, but not as their author may
	// expect; the first ones, if there are many.
	Warnings []string
	// Warned is how many warnings there are.
	Warned int
	// LastSuccess is when the source was read last; zero: never. An API server
	// counts as read at each list, watch and event.
	LastSuccess time.Time
	// Failures is how many attempts to read the source have failed.
	Failures uint64
}
