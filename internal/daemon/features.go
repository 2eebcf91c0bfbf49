package daemon

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/words"
)

// featuresOf returns the features that implement an interface, in the order of the table.
func featuresOf[T any](all []feature.Feature) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, f := range all {
			if t, ok := f.(T); ok && !yield(t) {
				return
			}
		}
	}
}

// addFeatures makes the features that the configuration asks for, and those of them that edit Services a part of the source.
func (d *Daemon) addFeatures(ctx context.Context) {
	d.ports = conntrack.NewPorts()
	d.Node = &feature.Node{
		Config: d.Config, Files: d.hasFiles(), Cluster: d.Cluster != nil, Commands: d.asksForSocket(), Machine: machineOf{d},
		RuntimeDirectory: d.RuntimeDirectory, StateDirectory: d.StateDirectory,
		Events: new(events.Recorder), Condition: d.Condition, Ports: d.ports, Log: d.Log, ObjectLog: loglimit.New(d.Log),
	}
	if d.Events != nil {
		d.Node.Events = events.New(ctx, d.Events, d.Config.Node.NodeName, d.Log)
	}
	editors := make(map[int]source.Editor)
	for _, row := range table.Rows {
		f := row.New(d.Node)
		if f == nil {
			continue
		}
		d.Features = append(d.Features, f)
		if e, ok := f.(source.Editor); ok {
			editors[row.Order] = e
		}
	}
	var inOrder []source.Editor
	for _, order := range slices.Sorted(maps.Keys(editors)) {
		inOrder = append(inOrder, editors[order])
	}
	d.Source = source.Edited(d.Source, inOrder...)
}

// machineOf is the machine of the daemon.
type machineOf struct{ *Daemon }

// Watch implements [feature.Machine]. A node may have no watch left for a file, which keeps nothing from being served.
func (machineOf) Watch(path string) drain.Watcher {
	watcher, err := files.NewWatcher(path)
	if err != nil {
		return unwatched{err}
	}
	return watcher
}

// unwatched is a watcher that fails.
type unwatched struct{ error }

func (u unwatched) Run(context.Context, func()) error { return u.error }

// Addresses implements [feature.Machine].
func (machineOf) Addresses() ([]model.InterfaceAddress, error) { return host.AddressesByInterface() }

// FollowAddresses implements [feature.Machine].
func (m machineOf) FollowAddresses(ctx context.Context, changed func()) {
	host.FollowAddresses(ctx, changed, m.Log)
}

// NoteHealthDirectory implements [feature.Machine].
func (m machineOf) NoteHealthDirectory(path string) { m.left.HealthDirectory(path) }

// followFeatures exports the metrics of features, and shows them each sync.
func (w *work) followFeatures() {
	for c := range featuresOf[feature.Counter](w.Features) {
		w.metrics.Add(c.Collectors()...)
	}
	for o := range featuresOf[feature.Observer](w.Features) {
		w.agent.Observers = append(w.agent.Observers, func(s *agent.Sync) {
			o.FollowSync(&feature.Sync{Routes: s.Routes, Compared: s.Compared, Complete: w.isComplete(), Err: s.Err})
		})
	}
}

// isComplete reports whether each part of the source was read at least once.
func (w *work) isComplete() bool { return w.Joined == nil || w.Joined.Complete() }

// serving is what features may ask of the work.
type serving struct {
	*agent.Agent
	work *work
}

// Words implements [feature.Serving].
func (s serving) Words() words.Vocabulary { return s.work.Words() }

// Filters implements [feature.Serving].
func (s serving) Filters(f model.Family) []string { return s.work.machine.Filters(f) }

// Begun implements [feature.Serving].
func (s serving) Begun() bool { return !s.State().LastSync.IsZero() }

// Families implements [feature.Serving].
func (s serving) Families() []model.Family { return s.work.node.Families }

// Programmed implements [feature.Serving]. Syncs of files alone do not count: pods need the Services of the cluster.
func (s serving) Programmed() (health.Programmed, bool) {
	p := s.work.Progress()
	if !s.work.isComplete() {
		p.LastSync, p.Pending = time.Time{}, s.work.pending(p.Started)
	}
	return s.work.health.Programmed(p, s.work.inherited)
}

// prepareFeatures does what features need more privileges for than serving.
func (d *Daemon) prepareFeatures(ctx context.Context) {
	for _, row := range table.Rows {
		if p, ok := row.Kind.(feature.Preparer); ok {
			p.Prepare(ctx, d.Config, d.Log)
		}
	}
}

// runFeatures starts the background work of features.
func (w *work) runFeatures(ctx context.Context, start func(func())) {
	for r := range featuresOf[feature.Runner](w.Features) {
		start(func() { r.Run(ctx) })
	}
}
