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
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/status"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// work is what takes part in syncs, and what tells of them.
type work struct {
	*Daemon
	node     model.Config
	applier  *apply.Applier
	agent    *agent.Agent // set before anybody asks
	events   *events.Recorder
	metrics  *metrics.Set
	status   *status.Server
	cleaner  *conntrack.Cleaner
	health   *health.Proxy
	services *health.Services
	// interfaces knows the addresses on which NodePorts and health checks are
	// served.
	interfaces *agent.Interfaces
	// successor is nil where kube-proxy's rules are none of our business.
	successor *successor
}

func (d *Daemon) newWork(ctx context.Context, families []model.Family, rules, asking *kernel.Conn) *work {
	w := &work{Daemon: d, node: d.Config.Node, applier: apply.New(rules, d.Log), events: new(events.Recorder)}
	w.node.Families, w.node.Counters = families, d.Config.Own.ServiceMetrics
	if d.Source.Events != nil {
		w.events = events.New(ctx, d.Source.Events, w.node.NodeName, d.Log)
	}
	w.metrics = metrics.New(d.Version, families, d.Log)
	w.applier.Observe, w.applier.Postponed = w.metrics.Committed, w.metrics.Postponed
	if d.Source.Counts != nil {
		w.metrics.ExportRequests(d.requests)
		w.metrics.FollowCluster(d.Source.Counts)
	}
	state := func() agent.State { return w.agent.State() }
	w.status = status.New(status.Config{
		Version: d.Version, Source: d.Source.Name, State: state, Routing: func() *model.Routing { return w.agent.Routing() },
		Counted: w.node.Counters, Kernel: asking, Log: d.Log,
	})
	if w.node.Counters {
		w.metrics.FollowConnections(w.connections)
	}
	w.cleaner = conntrack.New(conntrack.Netlink{}, conntrack.Config{
		TCP: d.Config.Own.ConntrackTCPCleanup, Observe: w.metrics.Cleaned, Log: d.Log,
	})
	w.health = &health.Proxy{
		Families:   families,
		SyncPeriod: d.Config.SyncPeriod(),
		Progress: func() health.Progress {
			s := state()
			return health.Progress{Started: s.Started, LastSync: s.LastSync, Pending: s.Pending}
		},
		Node:     d.Source.Node,
		Answered: w.metrics.Answered,
	}
	w.interfaces = agent.NewInterfaces(agent.ServingAddresses, d.Log)
	w.services = health.NewServices(health.ServicesConfig{
		Node: w.node, Interfaces: w.interfaces.Addresses, Healthy: w.healthy(), Failed: w.events.HealthCheckFailed, Log: d.Log,
	})
	if d.takesOver() {
		w.successor = newSuccessor(d.marker(), d.Log)
	}
	return w
}

// takesOver tells whether what kube-proxy left is to be removed: this process
// is in its place, and not beside it (12.61).
func (d *Daemon) takesOver() bool {
	return d.Source.Events != nil && d.Config.Own.TakeOver && !d.Config.Node.BesideAnother
}

// marker returns what stays in place of kube-proxy's tables.
func (d *Daemon) marker() takeover.Marker {
	if d.Config.Own.AnnounceNFTables {
		return takeover.MarkAlways
	}
	return takeover.MarkReplaced
}

// healthy is what health checks of Services depend on: without a health server
// the proxy counts as healthy (10.25).
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

func (w *work) agentConfig(rules *kernel.Conn) agent.Config {
	observers := []func(*agent.Sync){w.metrics.Observe, w.status.Observe, w.tell, w.follow}
	if w.successor != nil {
		observers = append(observers, w.successor.observe)
	}
	return agent.Config{
		Await:         w.Source.Await,
		Load:          w.Source.Load,
		Node:          w.node,
		Interfaces:    w.interfaces,
		Applier:       w.applier,
		AffinityUse:   w.metrics.Affinity(rules.AffinityUse),
		MinSyncPeriod: w.Config.MinSyncPeriod(),
		SyncPeriod:    w.Config.SyncPeriod(),
		Observers:     observers,
		Syncing:       w.cleaner.Still(),
		Log:           w.Log,
	}
}

// tell writes events about what cannot be served, and about what others did to
// the rules.
func (w *work) tell(s *agent.Sync) {
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

// follow does what comes after a successful sync: health check ports first, then
// conntrack cleanup, which goes on in the background (10.21, 13.21, 13.23).
func (w *work) follow(s *agent.Sync) {
	if s.Err != nil {
		return
	}
	w.services.Update(s.Router.HealthChecks(), s.Router.Node())
	w.cleaner.Change(s.Routes, s.Router.NodePortAddresses())
	if s.Compared {
		go thrift()
	}
}

// settledGC is the percentage by which the heap may grow before garbage is
// collected, once the rules are there. Changes make little garbage, and all nodes
// pay for the memory.
const settledGC = 50

// thrift gives memory back: to look at everything takes several times what is
// known, and is over for a long time now.
func thrift() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(settledGC)
	}
	debug.FreeOSMemory()
}

// profileTime is the longest that a profile may be asked for.
const profileTime = 10 * time.Minute

// serve starts the servers. They end with ctx; wait returns when they have.
func (w *work) serve(ctx context.Context, cancel context.CancelCauseFunc, a *agent.Agent) (wait func()) {
	w.agent = a
	w.metrics.FollowAgent(a.State)
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
	run("metrics server", w.Config.MetricsAddress(), w.metrics.Handler(w.paths()), profileTime, events.MetricsServerFailed)
	return func() {
		all.Wait()
		w.services.Close()
	}
}

// paths returns what the metrics server tells besides metrics (11.2, 11.4).
func (w *work) paths() metrics.Paths {
	p := metrics.Paths{
		Configz:      w.Config.Configz,
		Statusz:      w.Config.Feature(config.GateStatusz, true),
		Status:       w.status,
		Profiling:    w.Config.Kube.EnableProfiling,
		SetVerbosity: w.SetVerbosity,
	}
	if w.Config.Feature(config.GateFlagz, true) {
		p.Flags = w.Flags
	}
	return p
}
