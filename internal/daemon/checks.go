package daemon

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature/probe"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/source"
)

// checks are the health checks of endpoints. They begin before the work that they need:
// then no endpoint is known yet.
type checks struct {
	*probe.Engine
	work atomic.Pointer[work]
}

// addEditors makes addresses of interfaces, names of servers, changed servers, the health checks
// that Services ask for, and the list of drained endpoints a part of the source.
func (d *Daemon) addEditors() {
	c := &d.checks
	d.ports = conntrack.NewPorts()
	c.Engine = probe.NewEngine(probe.Config{Lacks: c.lacks, Serves: c.serves, Room: d.room, Observe: c.observe, Changed: c.changed, Log: d.Log, New: d.newChecker})
	editors := d.makeFeatures()
	if d.hasFiles() {
		d.followAddresses()
		editors = append(editors, orderedEditor{10, d.wildcards})
	}
	if d.changed != nil {
		editors = append(editors, orderedEditor{30, d.changed})
	}
	editors = append(editors, orderedEditor{40, c})
	if d.drains != nil {
		editors = append(editors, orderedEditor{50, d.drains})
	}
	d.Source = source.Edited(d.Source, inOrder(editors)...)
}

// newChecker returns a checker that connects also where masqueraded connections have taken nearly
// all source ports.
func (d *Daemon) newChecker(c *model.Check, t checker.Target) (checker.Checker, error) {
	t.Crowded = d.ports.Has
	return checker.New(c, t)
}

// hasFiles reports whether objects come from files, alone or beside an API server.
func (d *Daemon) hasFiles() bool { return d.Cluster == nil || d.Joined != nil }

// room returns how many checks may run at the same time.
func (d *Daemon) room() (network, programs int) {
	return descriptors.Checks(len(d.Config.Node.Localhost()) > 0)
}

func (c *checks) lacks(f model.Family) bool {
	w := c.work.Load()
	return w != nil && !slices.Contains(w.node.Families, f)
}

func (c *checks) serves(f model.Frontend) (model.ServiceName, bool) {
	w := c.work.Load()
	if w == nil {
		return model.ServiceName{}, false
	}
	return w.agent.Serves(f)
}

// observe counts a check.
func (c *checks) observe(o probe.Observation) {
	w := c.work.Load()
	if w == nil {
		return
	}
	result := metrics.CheckPassed
	switch {
	case errors.Is(o.Err, checker.ErrLocal):
		result = metrics.CheckNotMade
	case o.Err != nil:
		result = metrics.CheckFailed
	}
	w.metrics.Checked(o.Check.Type, o.Duration, result)
}

// changed counts endpoints whose health has changed, and reports the ones of Services of an
// API server as events.
func (c *checks) changed(all []probe.Transition) {
	w := c.work.Load()
	if w == nil {
		return
	}
	for i := range all {
		w.metrics.HealthChanged(all[i].Healthy)
		w.vitals.Note(all[i].Service)
	}
	if !w.Config.Own.HealthChecks {
		return // they are of Services of files
	}
	// A machine that dies may have thousands. The log counts the others.
	for _, t := range all[:min(len(all), budget.HealthEvents)] {
		w.events.EndpointHealth(t.Service, t.Address, t.Healthy, t.Message)
	}
}

// sampled takes the outcome of a sampled connection to an endpoint.
func (c *checks) sampled(to netip.AddrPort, o conntrack.Outcome, at time.Time) {
	failure := ""
	if o != conntrack.Answered {
		failure = o.String()
	}
	c.Sampled(to, failure, at)
}

// unsampled returns a notice for each Service whose passive check learns nothing.
func (c *checks) unsampled() (out []model.Notice) {
	for _, name := range c.Passive() {
		out = append(out, model.Notice{Object: name.Object(), Reason: model.NotObserved, Message: "its passive health check learns nothing: start nftproxy with --observe=failures"})
	}
	return out
}
