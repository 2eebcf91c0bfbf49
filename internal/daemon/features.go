package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// orderedEditor is an editor of a feature, with its place among all.
type orderedEditor struct {
	order int
	source.Editor
}

// makeFeatures makes the features that the configuration asks for, and returns their editors.
func (d *Daemon) makeFeatures() (editors []orderedEditor) {
	d.Node = &feature.Node{
		Config: d.Config, Files: d.hasFiles(), Cluster: d.Cluster != nil,
		RuntimeDirectory: d.RuntimeDirectory, StateDirectory: d.StateDirectory, Log: d.Log,
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
				o.Observe(&feature.Sync{Routes: s.Routes, Compared: s.Compared, Err: s.Err})
			})
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
