package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// orderedEditor is an editor of a feature, with its place among all.
type orderedEditor struct {
	order int
	source.Editor
}

// makeFeatures makes the features that the configuration asks for, and returns their editors.
func (d *Daemon) makeFeatures(ctx context.Context) (editors []orderedEditor) {
	d.ports = conntrack.NewPorts()
	d.Node = &feature.Node{
		Config: d.Config, Files: d.hasFiles(), Cluster: d.Cluster != nil,
		RuntimeDirectory: d.RuntimeDirectory, StateDirectory: d.StateDirectory,
		Events: new(events.Recorder), Condition: d.Condition, Ports: d.ports, Log: d.Log, ObjectLog: loglimit.New(d.Log),
	}
	if d.Events != nil {
		d.Node.Events = events.New(ctx, d.Events, d.Config.Node.NodeName, d.Log)
	}
	for _, row := range table.Rows {
		f := row.New(d.Node)
		if f == nil {
			continue
		}
		d.Features = append(d.Features, f)
		if e, ok := f.(source.Editor); ok {
			editors = append(editors, orderedEditor{row.Order, e})
		}
	}
	return editors
}

// inOrder returns editors such that each sees what those before it leave.
func inOrder(all []orderedEditor) (out []source.Editor) {
	slices.SortFunc(all, func(a, b orderedEditor) int { return a.order - b.order })
	for _, e := range all {
		out = append(out, e.Editor)
	}
	return out
}

// followFeatures exports the metrics of features, and shows them each sync.
func (w *work) followFeatures() {
	for _, f := range w.Features {
		if c, ok := f.(feature.Counter); ok {
			w.metrics.Add(c.Collectors()...)
		}
		if o, ok := f.(feature.Observer); ok {
			w.agent.Observers = append(w.agent.Observers, func(s *agent.Sync) {
				o.FollowSync(&feature.Sync{Routes: s.Routes, Compared: s.Compared, Complete: w.isComplete(), Err: s.Err})
			})
		}
	}
}

// isComplete reports whether each part of the source was read at least once.
func (w *work) isComplete() bool { return w.Joined == nil || w.Joined.Complete() }

// serving is what features may ask of the work.
type serving struct {
	*agent.Agent
	work *work
}

// Begun implements [feature.Serving].
func (s serving) Begun() bool { return !s.State().LastSync.IsZero() }

// Families implements [feature.Serving].
func (s serving) Families() []model.Family { return s.work.node.Families }

// Programmed implements [feature.Serving]. Syncs of files alone do not count: pods need the Services of the cluster.
func (s serving) Programmed() (health.Programmed, bool) {
	p := s.work.health.Progress()
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
	for _, f := range w.Features {
		if r, ok := f.(feature.Runner); ok {
			start(func() { r.Run(ctx) })
		}
	}
}

// featureProblems returns what is wrong with features, for the status.
func (w *work) featureProblems() (out []model.Notice) {
	now := time.Now()
	for _, f := range w.Features {
		if r, ok := f.(feature.Reporter); ok {
			out = append(out, r.Problems(now)...)
		}
	}
	return out
}
