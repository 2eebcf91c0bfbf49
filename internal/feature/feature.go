// Package feature says what a feature of the process on a node is: a folder below this one, with a row in
// [github.com/nftproxy/nftproxy/internal/feature/table]. The process loops over the rows, and knows none of them by name:
// without its folder and its row, a feature is gone.
package feature

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

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

// Preparer is a [Kind] that needs more privileges than serving, once, before a process that serves begins.
type Preparer interface {
	Prepare(ctx context.Context, c *config.Config, log *slog.Logger)
}

// Comparer is a [Kind] that compares addresses of this machine with those that Balances announce. With keeps, nothing is removed:
// rules of an earlier run stay.
type Comparer interface {
	CompareAddresses(balances []*model.View, runtimeDirectory string, keeps bool, log *slog.Logger) ([]AddressChange, error)
}

// Planner is a [Kind] that edits the snapshot of a plan as its feature edits the objects of a process.
type Planner interface {
	Plan(*model.Snapshot, *Known) (Planned, error)
}

// Feature is part of a process. It implements what it needs of [source.Editor] and of the interfaces below, all of
// which are called from several goroutines.
type Feature any

// Runner works in the background until ctx ends, from when the agent serves on.
type Runner interface{ Run(ctx context.Context) }

// Observer is called after each sync, in the order of the rows.
type Observer interface{ FollowSync(*Sync) }

// Reporter returns what is wrong, for the status.
type Reporter interface {
	Problems(now time.Time) []model.Notice
}

// Noter returns what else operators should know, for the status.
type Noter interface{ Notes() []model.Notice }

// Knower knows what decides over rules.
type Knower interface{ AddTo(*Known) }

// Counter returns the metrics of the feature. docs/metrics.md has a row for each.
type Counter interface{ Collectors() []prometheus.Collector }

// Viewer has a page of its own on the metrics server.
type Viewer interface {
	Page() (path, about string)
	// View returns a document, which is written as JSON, or as its text for people.
	View(Query) (document fmt.Stringer, err error)
}

// Query selects what a [Viewer] shows.
type Query struct {
	Filter string // part of the names of Services
	Limit  int    // most rows of a list
	ByName bool   // the order of rows; otherwise the largest come first
}

// Sync is an attempt of the agent to serve what the source has. Observers must not change it.
type Sync struct {
	Routes   []model.RouteChange // since the last successful one
	Compared bool                // the rules in the kernel were read and compared
	Complete bool                // each part of the source was read at least once
	Err      error
}

// Node is the process, as features see it.
type Node struct {
	Config  *config.Config
	Files   bool // objects come from files, alone or beside an API server
	Cluster bool // they come from an API server, alone or beside files
	// Commands change servers, at a socket that a setting asks for.
	Commands bool
	Machine  Machine
	// RuntimeDirectory outlasts the process, and StateDirectory also the machine's restart; empty: there is none.
	RuntimeDirectory, StateDirectory string
	Events                           *events.Recorder
	// Condition connects to the API server for the condition of the Node; nil: it gets none.
	Condition Connect
	Ports     PortCounter
	Log       *slog.Logger
	// ObjectLog has a limit, for what authors of Services can cause.
	ObjectLog *slog.Logger

	// Features are all features of this process, once each of them is made.
	Features []Feature

	serving atomic.Pointer[Serving]
}

type Machine interface {
	// Watch begins to watch a file, so that no change is lost after it.
	Watch(file string) drain.Watcher
	// Addresses lists the addresses by interface, sorted.
	Addresses() ([]model.InterfaceAddress, error)
	// FollowAddresses calls changed when an interface may have got or lost an address, until ctx ends.
	FollowAddresses(ctx context.Context, changed func())
	// NoteHealthDirectory notes a directory of files about Balances, for "nftproxy cleanup".
	NoteHealthDirectory(path string)
}

// Connect returns a client of the core group.
type Connect func() (rest.Interface, error)

// Serving is what the agent serves; [agent.Agent] documents all but the last five.
type Serving interface {
	Changed()
	IsBalance(model.ServiceName) bool
	PortOf(model.Frontend) (model.PortName, bool)
	Serves(model.Frontend) (model.ServiceName, bool)
	Holder(netip.Addr) (model.ServiceName, bool)
	Routes(yield func(*model.Route) bool)
	View(model.ServiceName) *model.View
	Kept() []model.ServiceName
	Relay(model.Frontend) (model.Relayed, bool)
	BehindLocalhost(model.Frontend) (netip.AddrPort, bool)
	// Words are the words for all Services.
	Words() words.Vocabulary
	// Begun reports whether a sync has succeeded.
	Begun() bool
	// Families are the ones that this machine has.
	Families() []model.Family
	// Filters are what may drop packets of a family on this machine; nil: that is not known.
	Filters(model.Family) []string
	// Programmed says whether the rules follow the cluster; false: that is not known.
	Programmed() (health.Programmed, bool)
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

func (nothing) Changed()                                                   {}
func (nothing) IsBalance(model.ServiceName) bool                           { return false }
func (nothing) Words() words.Vocabulary                                    { return words.Kubernetes }
func (nothing) PortOf(model.Frontend) (name model.PortName, ok bool)       { return name, false }
func (nothing) Serves(model.Frontend) (name model.ServiceName, ok bool)    { return name, false }
func (nothing) Holder(netip.Addr) (name model.ServiceName, ok bool)        { return name, false }
func (nothing) Filters(model.Family) []string                              { return nil }
func (nothing) Routes(func(*model.Route) bool)                             {}
func (nothing) View(model.ServiceName) *model.View                         { return nil }
func (nothing) Kept() []model.ServiceName                                  { return nil }
func (nothing) Relay(model.Frontend) (r model.Relayed, ok bool)            { return r, false }
func (nothing) BehindLocalhost(model.Frontend) (a netip.AddrPort, ok bool) { return a, false }
func (nothing) Begun() bool                                                { return false }
func (nothing) Families() []model.Family                                   { return model.Families[:] }
func (nothing) Programmed() (p health.Programmed, known bool)              { return p, false }

// Find returns the feature that implements an interface; its zero value: none does.
func Find[T any](all []Feature) (found T) {
	for _, f := range all {
		if found, ok := f.(T); ok {
			return found
		}
	}
	return found
}

// SinceText returns when something was changed, for the end of a message; empty: that is not known.
func SinceText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " at " + at.Local().Format("2006-01-02 15:04:05")
}

func OfMachine(reason model.Reason, messages ...string) (out []model.Notice) {
	for _, m := range messages {
		out = append(out, model.Notice{Object: model.Machine(), Reason: reason, Message: m})
	}
	return out
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

// PortCounter counts masqueraded connections.
type PortCounter interface {
	// Has reports whether addresses of this machine have few source ports left for a server.
	Has(of model.Protocol, server netip.AddrPort) bool
}
