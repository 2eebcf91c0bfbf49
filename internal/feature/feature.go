// Package feature says what a feature of the process on a node is: a folder below this one, with a row in
// [github.com/nftproxy/nftproxy/internal/feature/table]. The process loops over the rows, and knows none of them by name:
// without its folder and its row, a feature is gone.
package feature

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Row is a row of the table of features.
type Row struct {
	Name string
	// Order is the place of its editor among those of all features: each edits what those before it leave. 0: it
	// edits no Services.
	Order int
	Kind
}

// Kind makes a feature.
type Kind interface {
	// New returns the feature as the configuration asks for it, or nil. It has to be quick: the source is not read yet.
	New(*Node) Feature
}

// Feature is part of a process. It implements what it needs of [source.Editor] and of the interfaces below, all of
// which are called from several goroutines.
type Feature any

// Runner works in the background until ctx ends, from when the agent serves on.
type Runner interface{ Run(ctx context.Context) }

// Observer is called after each sync, in the order of the rows.
type Observer interface{ Observe(*Sync) }

// Reporter returns what is wrong, for the status.
type Reporter interface {
	Problems(now time.Time) []model.Notice
}

// Counter returns the metrics of the feature. docs/metrics.md has a row for each.
type Counter interface{ Collectors() []prometheus.Collector }

// Sync is an attempt of the agent to serve what the source has. Observers must not change it.
type Sync struct {
	Routes   []model.RouteChange // since the last successful one
	Compared bool                // the rules in the kernel were read and compared
	Err      error
}

// Node is the process, as features see it.
type Node struct {
	Config  *config.Config
	Files   bool // objects come from files, alone or beside an API server
	Cluster bool // they come from an API server, alone or beside files
	// RuntimeDirectory outlasts the process, and StateDirectory also the machine's restart; empty: there is none.
	RuntimeDirectory, StateDirectory string
	Log                              *slog.Logger

	// Features are all features of this process, once each of them is made.
	Features []Feature

	serving atomic.Pointer[Serving]
}

// Serving is what the agent serves.
type Serving interface {
	// PortOf returns the Service port that has a frontend. It may wait for a sync.
	PortOf(model.Frontend) (model.PortName, bool)
	// Routes yields all routes, sorted, and keeps syncs from starting meanwhile.
	Routes(yield func(*model.Route) bool)
}

// Serve makes known what the agent serves.
func (n *Node) Serve(s Serving) { n.serving.Store(&s) }

// Serving returns what the agent serves: nothing before it begins.
func (n *Node) Serving() Serving {
	if s := n.serving.Load(); s != nil {
		return *s
	}
	return nothing{}
}

type nothing struct{}

func (nothing) PortOf(model.Frontend) (name model.PortName, ok bool) { return name, false }
func (nothing) Routes(func(*model.Route) bool)                       {}

// Find returns the feature that implements an interface; its zero value: none does.
func Find[T any](all []Feature) (found T) {
	for _, f := range all {
		if found, ok := f.(T); ok {
			return found
		}
	}
	return found
}

// MostServices is how many Services have a series of a metric of their own. A machine that dies or returns may concern all.
const MostServices = 100

// Highest returns the Services with the highest counts, at most MostServices.
func Highest(counts map[model.ServiceName]int) []model.ServiceName {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b model.ServiceName) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), a.Compare(b))
	})
	return names[:min(len(names), MostServices)]
}

// Gauge returns a metric without labels whose value is read when it is collected.
func Gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}
