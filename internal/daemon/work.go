package daemon

import (
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/status"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// work is the agent and everything that observes its syncs.
type work struct {
	*Daemon
	node     model.Config
	agent    *agent.Agent
	events   *events.Recorder
	metrics  *metrics.Set
	status   *status.Server
	cleaner  *conntrack.Cleaner
	health   *health.Proxy
	services *health.Services
	// interfaces knows the addresses on which NodePorts and health checks are
	// served.
	interfaces *host.Interfaces
	// successor is nil unless kube-proxy is replaced.
	successor *successor
}

// sockets are those to the kernel's rules.
type sockets struct {
	rules   *kernel.Conn // of the agent
	owns    bool         // rules can claim the tables
	scrapes *kernel.Conn
}

func (d *Daemon) newWork(ctx context.Context, families []model.Family, s sockets) *work {
	w := &work{Daemon: d, node: d.Config.Node, events: new(events.Recorder)}
	w.node.Families, w.node.Counters = families, d.Config.Own.ServiceMetrics
	if d.Events != nil {
		w.events = events.New(ctx, d.Events, w.node.NodeName, d.Log)
	}
	w.metrics = metrics.New(d.Version, families, d.Log)
	w.cleaner = conntrack.New(conntrack.Netlink{}, conntrack.Config{
		TCP: d.Config.Own.ConntrackTCPCleanup, Observe: w.metrics.Cleaned, Log: d.Log,
	})
	w.interfaces = host.NewInterfaces(host.ServingAddresses, d.Log)
	w.agent = w.newAgent(s)
	w.addServers(families, s.scrapes)
	if d.takesOver() {
		w.successor = newSuccessor(d.marker(), d.Log)
	}
	w.follow()
	return w
}

func (w *work) newAgent(s sockets) *agent.Agent {
	applier := apply.New(s.rules, w.Log)
	applier.Observe, applier.Postponed = w.metrics.Committed, w.metrics.Postponed
	if s.owns {
		applier.Claim = s.rules.Claim
	}
	return agent.New(agent.Config{
		Await:         w.Source.Await,
		Load:          w.Source.Load,
		Node:          w.node,
		Interfaces:    w.interfaces,
		Applier:       applier,
		AffinityUse:   w.metrics.Affinity(s.rules.AffinityUse),
		MinSyncPeriod: w.Config.MinSyncPeriod(),
		SyncPeriod:    w.Config.SyncPeriod(),
		Syncing:       w.cleaner.Still(),
		Log:           w.Log,
	})
}

// addServers adds what answers questions.
func (w *work) addServers(families []model.Family, scrapes *kernel.Conn) {
	w.status = status.New(status.Config{
		Version: w.Version, Source: w.Source.String(), State: w.agent.State, Routing: w.agent.Routing,
		Counted: w.node.Counters, Kernel: scrapes, Log: w.Log,
	})
	w.health = &health.Proxy{
		Families:   families,
		SyncPeriod: w.Config.SyncPeriod(),
		Progress: func() health.Progress {
			s := w.agent.State()
			return health.Progress{Started: s.Started, LastSync: s.LastSync, Pending: s.Pending}
		},
		Node:     w.Source.Node,
		Answered: w.metrics.Answered,
	}
	w.services = health.NewServices(health.ServicesConfig{
		Node: w.node, Interfaces: w.interfaces.Addresses, Healthy: w.healthy(), Failed: w.events.HealthCheckFailed, Log: w.Log,
	})
}

// follow has the metrics follow everything, and the others the syncs.
func (w *work) follow() {
	if c := w.cluster(); c != nil {
		w.metrics.FollowCluster(c.Counts)
	}
	if w.node.Counters {
		w.metrics.FollowConnections(w.connections)
	}
	w.metrics.FollowAgent(w.agent.State)
	w.agent.Observe(w.metrics.Observe, w.status.Observe, w.report, w.synced)
	if w.successor != nil {
		w.agent.Observe(w.successor.observe)
	}
}

// takesOver reports whether what kube-proxy left is to be removed: this process
// replaces it, and does not run beside it (12.61).
func (d *Daemon) takesOver() bool {
	return d.cluster() != nil && d.Config.Own.TakeOver && !d.Config.Node.BesideAnother
}

// marker returns what replaces kube-proxy's tables.
func (d *Daemon) marker() takeover.Marker {
	if d.Config.Own.AnnounceNFTables {
		return takeover.MarkAlways
	}
	return takeover.MarkReplaced
}

// healthy returns what health checks of Services depend on: without a health
// server the proxy counts as healthy (10.25).
func (w *work) healthy() func() bool {
	if w.Config.HealthAddress() == "" {
		return nil
	}
	return w.health.Healthy
}

// connections returns the counters of connections for metrics.
func (w *work) connections() ([]metrics.ServiceCount, error) {
	counts, err := w.status.ServiceCounts()
	out := make([]metrics.ServiceCount, len(counts))
	for i, c := range counts {
		out[i] = metrics.ServiceCount(c)
	}
	return out, err
}

// report writes events about what cannot be served, and about changes of the rules
// by other programs.
func (w *work) report(s *agent.Sync) {
	if s.NewNotices {
		w.events.Notices(s.Router.Notices())
	}
	if s.Err != nil || s.Plan.Empty() {
		return
	}
	for _, i := range s.Interventions {
		if !i.Missed {
			w.events.RulesRepaired(i.By.String(), i.Touched)
			return // one of them: the log has all
		}
	}
}

// synced does what follows a successful sync: health check ports first, then
// conntrack cleanup, which runs in the background (10.21, 13.21, 13.23).
func (w *work) synced(s *agent.Sync) {
	if s.Err != nil {
		return
	}
	w.services.Update(s.Router.HealthChecks(), s.Router.Node())
	w.cleaner.Change(s.Routes, s.Router.NodePortAddresses())
	if s.Compared {
		go freeMemory()
	}
}

// settledGC is the percentage by which the heap may grow before garbage is
// collected, once the rules are complete. Changes make little garbage, and all
// nodes pay for the memory.
const settledGC = 50

// freeMemory returns memory to the system: a sync of everything needs several
// times as much as it keeps, and happens rarely.
func freeMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(settledGC)
	}
	debug.FreeOSMemory()
}

// profileTime is the longest that a requested profile may take.
const profileTime = 10 * time.Minute

// serve starts the servers. They end with ctx; wait returns when they have.
func (w *work) serve(ctx context.Context, cancel context.CancelCauseFunc) (wait func()) {
	var all sync.WaitGroup
	all.Go(func() { w.cleaner.Run(ctx) })
	run := func(name, address string, handler http.Handler, timeout time.Duration, reason string) {
		if address == "" {
			return
		}
		s := &serve.Server{
			Name: name, Address: address, Handler: handler, WriteTimeout: timeout, HardFail: w.Config.Kube.BindAddressHardFail, Log: w.Log,
		}
		all.Go(func() {
			if err := s.Run(ctx); err != nil {
				w.events.ServerFailed(reason, err)
				cancel(err)
			}
		})
	}
	run("health server", w.Config.HealthAddress(), w.health, 0, events.HealthServerFailed)
	if w.successor != nil {
		all.Go(func() { w.successor.run(ctx) })
	}
	run("metrics server", w.Config.MetricsAddress(), w.pages(), profileTime, events.MetricsServerFailed)
	return func() {
		all.Wait()
		w.services.Close()
	}
}

// pages returns what the metrics server answers (11.2, 11.4).
func (w *work) pages() http.Handler {
	p := serve.Pages{
		Pinged:       w.metrics.Pinged,
		Configz:      w.Config.Configz,
		Profiling:    w.Config.Kube.EnableProfiling,
		SetVerbosity: w.SetVerbosity,
		Log:          w.Log,
	}
	if w.Config.Feature(config.GateStatusz, true) {
		p.Version = w.Version
	}
	if w.Config.Feature(config.GateFlagz, true) {
		p.Flags = w.Flags
	}
	mux := http.NewServeMux()
	w.metrics.Handle(mux)
	mux.Handle("/status", w.status)
	p.Handle(mux)
	return mux
}
