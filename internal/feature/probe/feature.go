package probe

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	c := &checks{node: n, metrics: newMetrics()}
	c.Engine = NewEngine(Config{
		Lacks:  func(f model.Family) bool { return !slices.Contains(n.Serving().Families(), f) },
		Serves: func(f model.Frontend) (model.ServiceName, bool) { return n.Serving().Serves(f) },
		Room: func() (network, programs int) {
			return descriptors.Checks(len(n.Config.Node.Localhost()) > 0)
		},
		// It connects also where masqueraded connections have taken nearly all source ports.
		New: func(c *model.Check, t checker.Target) (checker.Checker, error) {
			t.Crowded = n.Ports.Has
			return checker.New(c, t)
		},
		Observe: c.observe, Changed: c.changed, Log: n.Log,
	})
	return c
}

type checks struct {
	*Engine
	node    *feature.Node
	metrics metrics
}

// Collectors implements [feature.Counter].
func (c *checks) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.total, c.metrics.transitions, c.metrics.duration, newCollector(c.Engine)}
}

// Problems implements [feature.Reporter]: it returns the Services whose passive check learns nothing.
func (c *checks) Problems(time.Time) (out []model.Notice) {
	if c.node.Config.Node.Observe.Failures() {
		return nil
	}
	for _, name := range c.Passive() {
		out = append(out, model.Notice{Object: name.Object(), Reason: model.NotObserved, Message: "its passive health check learns nothing: start nftproxy with --observe=failures"})
	}
	return out
}

func (c *checks) observe(o Observation) {
	result := checkPassed
	switch {
	case errors.Is(o.Err, checker.ErrLocal):
		result = checkNotMade
	case o.Err != nil:
		result = checkFailed
	}
	c.metrics.countCheck(o.Check.Type, o.Duration, result)
}

// changed counts endpoints whose health has changed, and reports the ones of Services of an
// API server as events.
func (c *checks) changed(all []Transition) {
	acts := feature.Find[interface{ Note(...model.ServiceName) }](c.node.Features)
	for i := range all {
		c.metrics.countTransition(all[i].Healthy)
		if acts != nil {
			acts.Note(all[i].Service)
		}
	}
	if !c.node.Config.Own.HealthChecks {
		return // they are of Services of files
	}
	// A machine that dies may have thousands. The log counts the others.
	for _, t := range all[:min(len(all), budget.HealthEvents)] {
		c.node.Events.EndpointHealth(t.Service, t.Address, t.Healthy, t.Message)
	}
}
