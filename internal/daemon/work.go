package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/preflight"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/systemd"
)

// work is the agent and everything that observes its syncs.
type work struct {
	*Daemon
	node     model.Config
	agent    *agent.Agent
	events   *events.Recorder
	metrics  *metrics.Set
	status   *report.Server
	cleaner  *conntrack.Cleaner
	health   *health.Proxy
	services *health.Services
	checked  []model.HealthCheck // of Services, as services last got them
	// interfaces has the addresses that serve NodePorts and health checks.
	interfaces *host.Interfaces
	machine    *machine.Monitor
	unset      string // why settings of connection tracking could not be restored
	watched    *guard // of the rules; nil: no other program can change them, or there is no watch
	systemd    *systemd.Notifier
	control    *controller // nil: commands change no servers
	inherited  bool        // the kernel had rules of an earlier run at the start, if there is a condition of the Node
}

// sockets are the connections to nf_tables.
type sockets struct {
	rules   *kernel.Conn  // of the agent
	owns    bool          // rules can claim the tables
	resume  *agent.Record // see [agent.Config]
	scrapes *kernel.Conn
}

// Owner implements [conntrack.Rules]: the agent is made after the cleaner.
func (w *work) Owner(f model.Frontend) (model.Frontend, bool) { return w.agent.Owner(f) }

// forgetRefusals removes the counters of refused connections to frontends that are gone, when
// the rules are compared.
func (w *work) forgetRefusals(s *agent.Sync, rules *kernel.Conn) {
	if s.Cause != agent.Check || s.Err != nil {
		return
	}
	if err := (counters.Reader{Conn: rules}).ForgetRefusals(report.GoneRefusals(s.Router.Routing())); err != nil {
		w.Log.Debug("counters of refused connections to frontends that are gone remain", "error", err)
	}
}

func (d *Daemon) newWork(ctx context.Context, families []model.Family, s sockets) *work {
	w := &work{Daemon: d, node: d.Config.Node, events: d.Node.Events, systemd: systemd.New(d.Log)}
	w.node.Families = families
	w.metrics = metrics.New(d.Version, families, d.Log)
	w.cleaner = conntrack.New(conntrack.Netlink{}, conntrack.Config{
		TCP: d.Config.Own.ConntrackTCPCleanup, Observer: w.metrics, Rules: w, Log: d.Log,
	})
	w.machine = &machine.Monitor{Node: monitored{w}, Log: d.Log, Ports: d.ports}
	if d.Config.Own.ManageSysctl {
		w.machine.Forwarder = monitored{w}
	}
	w.interfaces = host.NewInterfaces(host.System(""), d.Log)
	w.agent = w.newAgent(s)
	w.addServers(families, s.scrapes)
	w.inherited = d.Condition != nil && hasRules() // before the first sync
	w.follow()
	if w.node.Observe.Refusals() {
		w.agent.Observers = append(w.agent.Observers, func(a *agent.Sync) { w.forgetRefusals(a, s.rules) })
	}
	w.Serve(serving{w.agent, w})
	return w
}

func (w *work) newAgent(s sockets) *agent.Agent {
	applier := apply.New(s.rules, w.Log)
	applier.Observer, applier.Owns, applier.Shared = transactions{work: w, rules: s.rules}, s.owns, !s.owns
	return agent.New(agent.Config{
		Source:        told{w.Source, w.systemd},
		Node:          w.node,
		Interfaces:    w.interfaces,
		Applier:       applier,
		Resume:        s.resume,
		Affinity:      metrics.Affinity{Set: w.metrics, From: s.rules},
		MinSyncPeriod: w.Config.MinSyncPeriod(),
		SyncPeriod:    w.Config.SyncPeriod(),
		Syncing:       w.cleaner.Still(),
		Watchdog:      w.systemd,
		Log:           w.Log,
	})
}

// transactions counts what is committed, and adds the counters that a transaction ends.
type transactions struct {
	apply.Unobserved
	work  *work
	rules *kernel.Conn
}

func (t transactions) Committing(p *plan.Plan) func(error) {
	if w := t.work; w.node.Counters || w.node.Observe.Refusals() {
		return w.status.Committing(p, counters.Reader{Conn: t.rules}.LastCounts)
	}
	return t.Unobserved.Committing(p)
}

func (t transactions) Committed(c apply.Commit)          { t.work.metrics.Committed(c) }
func (t transactions) Postponed(families []model.Family) { t.work.metrics.Postponed(families) }

func (w *work) addServers(families []model.Family, scrapes *kernel.Conn) {
	w.status = report.New(report.Config{
		Version: w.Version, Source: w.Source.String(), Node: w.node.NodeName, Reads: w.reads, Agent: w.agent, Facts: w.facts(), Checks: feature.Find[report.Checks](w.Features),
		Kernel: counters.Reader{Conn: scrapes}, Planner: report.KernelPlanner{Log: w.Log}, Observe: w.node.Observe.Level,
		Counted: w.node.Counters, EndpointsCounted: w.node.EndpointCounters, Log: w.Log,
	})
	w.health = &health.Proxy{Families: families, SyncPeriod: w.Config.SyncPeriod(), State: healthState{w}}
	c := health.ServicesConfig{
		Node: w.node, Interfaces: w.interfaces,
		Connections: descriptors.Connections(health.Connections), Events: w.events, Log: w.ObjectLog, // authors of Services can make it fail
	}
	if w.Config.HealthAddress() != "" { // without it, the proxy counts as healthy (10.25)
		c.Proxy = w.health
	}
	w.services = health.NewServices(c)
}

// healthState implements [health.State].
type healthState struct{ *work }

// Progress returns the progress of syncs.
func (w *work) Progress() health.Progress {
	s := w.agent.State()
	return health.Progress{Started: s.Started, LastSync: s.LastSync, Pending: w.pending(s.Pending)}
}

// Node implements [health.State].
func (h healthState) Node() *model.Node { return h.Source.Node() }

// SourceUnusable implements [health.State].
func (h healthState) SourceUnusable() time.Time {
	if s := h.Source.State(); s.Err != nil {
		return s.Since
	}
	return time.Time{}
}

// Answered implements [health.State].
func (h healthState) Answered(path string, code int) { h.metrics.Answered(path, code) }

// follow connects the metrics with their sources, and the observers with the agent.
func (w *work) follow() {
	if c := w.Cluster; c != nil {
		w.metrics.FollowCluster(c.Counts)
	}
	if w.node.Counters {
		w.metrics.FollowConnections(w.status.ServiceCounts)
	}
	if w.node.EndpointCounters {
		w.metrics.FollowEndpoints(w.status.EndpointTotals)
	}
	w.metrics.FollowLimits(w.status.LimitCounts, w.status.UnlimitedCounts)
	if w.node.Observe.Refusals() {
		w.metrics.FollowRefusals(w.status.RefusalCounts)
	}
	w.metrics.FollowAgent(w.agent.State)
	w.metrics.FollowMachine(w.machine.Counts, machine.ReadConntrack)
	w.metrics.FollowSource(w.Source.State)
	w.agent.Observers = append(w.agent.Observers, w.metrics.Observe, w.status.Observe, w.report, w.synced, w.checkMachine)
	w.followFeatures()
	if changed := w.changed(); changed != nil && w.asksForSocket() {
		w.control = &controller{work: w, changed: changed, drains: w.drains(), synced: make(chan struct{})}
		w.agent.Observers = append(w.agent.Observers, w.control.observe)
	}
	w.agent.Observers = append(w.agent.Observers, w.notify) // the others have seen the rules
}

// report writes events about notices and about changes of the rules by other programs.
func (w *work) report(s *agent.Sync) {
	if s.NewNotices {
		w.events.Notices(s.Notices())
	}
	if s.Err != nil || s.Plan.Empty() {
		return
	}
	for _, i := range s.Interventions {
		if !i.Missed {
			w.events.RulesRepaired(i.By.String(), i.Touched)
			return // the log has the others
		}
	}
}

// healthChecks returns the health checks that the Services want now, but of quarantined
// Services as they were before: the rules of these have not changed.
func healthChecks(now, before []model.HealthCheck, quarantined []model.ServiceName) []model.HealthCheck {
	if len(quarantined) == 0 {
		return now
	}
	stays := func(h model.HealthCheck) bool { return slices.Contains(quarantined, h.Service) }
	out := slices.DeleteFunc(slices.Clone(now), stays)
	for _, h := range before {
		if stays(h) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b model.HealthCheck) int { return a.Service.Compare(b.Service) })
	return out
}

// synced updates health check ports after a successful sync, then starts conntrack
// cleanup in the background (10.21, 13.21, 13.23).
func (w *work) synced(s *agent.Sync) {
	if s.Err != nil {
		return
	}
	w.checked = healthChecks(s.Router.HealthChecks(), w.checked, s.Quarantined)
	w.services.Update(w.checked, s.Router.Node())
	w.cleaner.Change(s.Routes, s.Router.NodePortAddresses())
}

// profileTime limits the duration of a requested profile.
const profileTime = 10 * time.Minute

// serve starts the servers and background work, which end with ctx. wait waits for
// their end.
func (w *work) serve(ctx context.Context, cancel context.CancelCauseFunc) (wait func()) {
	var all sync.WaitGroup
	all.Go(func() { w.cleaner.Run(ctx) })
	w.runFeatures(ctx, all.Go)
	pages := w.metricsSite()
	if w.socket != nil {
		w.socket.Handler = w.socketHandler(pages)
		w.socket.Open()                          // before the other pages
		all.Go(func() { _ = w.socket.Run(ctx) }) // it tries again after errors, which it logs
	}
	all.Go(func() { w.systemd.Run(ctx, w.status.Line) })
	run := func(name, address string, site *serve.Site, timeout time.Duration, reason string) {
		if address == "" {
			return
		}
		s := &serve.Server{
			Name: name, Address: address, Site: site, WriteTimeout: timeout, HardFail: w.Config.Kube.BindAddressHardFail,
			Connections: descriptors.Connections(serve.Connections), Log: w.Log,
		}
		all.Go(func() {
			if err := s.Run(ctx); err != nil {
				w.events.ServerFailed(reason, err)
				cancel(err)
			}
		})
	}
	run("health server", w.Config.HealthAddress(), w.healthSite(), 0, events.HealthServerFailed)
	run("metrics server", w.Config.MetricsAddress(), pages, profileTime, events.MetricsServerFailed)
	return func() {
		all.Wait()
		w.services.Close()
	}
}

// prepareHost checks the kernel and sets what connection tracking needs
// (12.48, 12.49).
func (d *Daemon) prepareHost() ([]model.Family, error) {
	var machine host.System
	families, err := machine.Families()
	if err != nil {
		return nil, err
	}
	if len(families) < len(model.Families) {
		d.Log.Info("this node has no IPv6: serving IPv4 only")
	}
	features := func() error { return d.checkKernel(families) }
	if err := d.awaits("answers of the kernel about its features: it may load modules", features); err != nil {
		return nil, err
	}
	settings := func() error { return machine.SetConntrack(conntrackOf(d.Config), d.left.Setting, d.Log) }
	if err := d.awaits("settings of connection tracking", settings); err != nil {
		return nil, err
	}
	if score := d.Config.Kube.OOMScoreAdj; score != nil {
		if err := machine.SetOOMScore(int(*score), d.Log); err != nil {
			d.Log.Warn("the kernel may end this process early when memory is short", "error", err)
		}
	}
	return families, nil
}

// checkKernel returns an error for each feature that is missing. Without those that only
// connection limits need, Services are served without limits, and without those of refused
// connections, these are not observed.
func (d *Daemon) checkKernel(families []model.Family) error {
	node := &d.Config.Node
	problems, err := preflight.Check(families, preflight.Use{Observe: node.Observe.Level != model.ObserveOff, Relay: d.hasFiles()})
	if err != nil {
		return fmt.Errorf("ask the kernel for its features: %w", err)
	}
	var errs []error
	for _, p := range problems {
		switch {
		case p.Limits:
			node.NoLimits = true
			d.Log.Warn("this kernel cannot limit connections", "problem", p.String())
		case p.Relay:
			d.Log.Warn("this kernel cannot redirect connections: Balances with relay are not served", "problem", p.String())
		case p.Observe:
			node.Observe = model.Observe{}
			d.Log.Warn("this kernel cannot count and log refused connections: --observe has no effect", "problem", p.String())
		default:
			errs = append(errs, errors.New(p.String()))
		}
	}
	if node.Observe.Refusals() {
		tracks, err := nflog.Tracks()
		if err != nil {
			errs = append(errs, err)
		}
		node.Observe.Untracked = !tracks
	}
	return errors.Join(errs...)
}

// notify reports to systemd that the rules are active, and what may have changed
// (12.80).
func (w *work) notify(s *agent.Sync) {
	if s.Err == nil {
		w.systemd.Ready()
	}
	w.systemd.Changed()
}

// told is a source that tells systemd when it cannot be used: no sync follows.
type told struct {
	source.Source
	systemd *systemd.Notifier
}

// Load implements [agent.Source].
func (t told) Load() (*model.Update, error) {
	u, err := t.Source.Load()
	if err != nil {
		t.systemd.Changed()
	}
	return u, err
}
