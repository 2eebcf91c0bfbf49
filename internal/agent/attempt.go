package agent

import (
	"iter"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// applyPending applies the changes since the last success. A comparison follows if it
// is due, or if the kernel's content is unknown.
func (a *Agent) applyPending(s *Sync) error {
	if s.Cause == Start {
		defer relaxCollector()()
	}
	base := a.updateRouter(s)
	due := s.Cause == Check || s.Cause == Drift || s.Cause == Retry && a.drift.isPending()
	released := a.quarantine.retryServices(s.Cause == Check)
	s.Routes = a.pending.routes
	if a.Applier.Known() && !base && !released && a.own == nil && !a.quarantine.needsComparison() {
		err := a.applyDelta(s)
		if err == nil && !due {
			return nil
		}
		if err != nil && a.Applier.Known() { // nothing has changed in the kernel
			return err
		}
		if err != nil {
			a.Log.Info("a change failed; comparing all rules with the kernel", "error", err)
			a.quarantineRefused(s, err)
		}
	}
	return a.compare(s)
}

// applyDelta applies the changes to what was applied last. Before a check it also removes
// idle lanes, so that the check finds only changes by other programs. After drift it
// keeps them: another nftproxy may use them, and deleting a lane is not guarded by the
// kernel's state.
func (a *Agent) applyDelta(s *Sync) (err error) {
	due := s.Cause == Check || s.Cause == Drift
	delta := a.rules.Change(s.Routes, a.router.NodePortAddresses())
	if s.Plan, err = a.Applier.Apply(delta); err != nil {
		a.rules.Undo()
		return err
	}
	if !due {
		return nil
	}
	if !s.Plan.Empty() {
		a.Log.Info("rules applied before the comparison", "changes", len(s.Plan.Changes))
	}
	if s.Cause == Drift {
		return nil
	}
	if err := a.dropIdle(); err != nil {
		a.Log.Debug("idle lanes remain", "error", err)
	}
	return nil
}

func (a *Agent) dropIdle() error {
	_, err := a.Applier.Apply(a.rules.DropIdle())
	if err != nil {
		a.rules.Undo()
	}
	return err
}

// compare applies all of the router's routes to the content of the kernel, except routes
// of quarantined Services, which stay as they are.
func (a *Agent) compare(s *Sync) (err error) {
	s.Compared = true
	defer func() { a.Resume = nil }() // it is about the start
	s.Interventions = a.drift.takeWaiting()
	if empty, err := a.Applier.Empty(); err == nil && empty {
		if err = a.load(s); err == nil {
			a.updateKept(nil, nil)
			return nil
		}
		a.Log.Debug("load failed; comparing all rules with the kernel", "error", err)
		a.quarantineRefused(s, err)
	}
	a.routeUpdate(s)
	for {
		if err = a.compareOnce(s); err == nil || !a.quarantineRefused(s, err) {
			return err
		}
	}
}

func (a *Agent) compareOnce(s *Sync) (err error) {
	if a.resumesObjects(s) {
		a.logResumed(s)
		return nil
	}
	rules, delta, err := a.start()
	if err != nil {
		return err
	}
	if r := a.Resume; r != nil && a.own == nil && len(a.quarantine.services) == 0 && a.Applier.Resume(delta.After, &r.Record) {
		a.rules = rules
		a.logResumed(s)
		return nil
	}
	if s.Plan, err = a.Applier.Apply(delta); err != nil {
		return err
	}
	a.rules, a.compared = rules, time.Now()
	return nil
}

func (a *Agent) logResumed(s *Sync) {
	a.Log.Info("the kernel still holds these rules: nothing has to be compared")
	s.Plan, a.compared = &plan.Plan{}, time.Now()
}

// loadGC is the value of GOGC during the first sync and a load, of which most stays on the heap:
// what the collector finds is hardly worth the time. A limit of memory (GOMEMLIMIT) still holds.
const loadGC = 400

// relaxCollector lets the collector run less often until the function that it returns is called.
func relaxCollector() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(loadGC)
	return func() { debug.SetGCPercent(before) }
}

func (a *Agent) load(s *Sync) (err error) {
	defer relaxCollector()()
	rules, parts := a.loadParts(s)
	if s.Plan, err = a.Applier.Load(parts); err != nil {
		a.routeUpdate(s)
		return err
	}
	a.rules, a.compared = rules, time.Now()
	return nil
}

func (a *Agent) loadParts(s *Sync) (*render.State, iter.Seq[nft.Delta]) {
	if a.pending.update != nil {
		return a.fillRouter(s)
	}
	base, routes := a.router.Base(), s.Routes
	if a.rules != nil { // the changes are not all
		base = a.quarantine.wantedRouting()
		routes = render.Added(base)
	}
	rules, parts := render.Load(base, routes)
	return rules, paceParts(parts, func() int { return len(routes) }, a.reportAlive, a.Log)
}

// fillFrom is how many Services a start has at least that decides about some of them while the
// kernel takes the rules of others.
const fillFrom = 1000

// fillStep is about how many elements are decided about together.
const fillStep = 4096

// canFill reports whether Services wait for [Agent.fillRouter]: at a start with many of them, and none of our
// tables in the kernel.
func (a *Agent) canFill(s *Sync) bool {
	if s.Cause != Start || a.pending.update == nil || len(a.pending.update.Services) < fillFrom {
		return false
	}
	empty, err := a.Applier.Empty()
	return err == nil && empty
}

// fillRouter gives the router its Services while they are loaded, and returns the state after that, and
// its parts. The routes of the sync are known when all parts have been taken. The router decides about
// a part while the one before is rendered, and the kernel takes the one before that.
func (a *Agent) fillRouter(s *Sync) (*render.State, iter.Seq[nft.Delta]) {
	services := a.pending.update.Services
	rules, parts := render.Fill(a.router.Base(), parallel.Ahead(func(yield func([]model.RouteChange) bool) {
		a.routing.Lock()
		defer a.routing.Unlock()
		changes := a.router.Fill(services, fillStep, func(part []model.RouteChange) bool {
			a.routing.Unlock()
			defer a.routing.Lock()
			return yield(part)
		})
		a.pending.update = nil
		a.addPending(s, changes)
	}))
	return rules, paceParts(parts, func() int { return frontendsOf(services) }, a.reportAlive, a.Log)
}

// routeUpdate gives the router the Services that wait for [Agent.fillRouter].
func (a *Agent) routeUpdate(s *Sync) {
	if a.pending.update == nil {
		return
	}
	a.routing.Lock()
	defer a.routing.Unlock()
	a.addPending(s, a.router.SetServices(a.pending.update.Services))
	a.pending.update = nil
}

// quarantineRefused quarantines the Services that make the kernel refuse a sync, and reports
// whether there are some.
func (a *Agent) quarantineRefused(s *Sync, refusal error) bool {
	found := a.quarantine.addRefused(refusal, a.rules != nil)
	s.Routes = a.pending.routes
	return found
}

// slowRead is how long the first read of the source may take without a log line.
const slowRead = time.Second

// firstLoad reads the source, and logs that if it took long: many files do.
func (a *Agent) firstLoad() (*model.Update, error) {
	start := time.Now()
	u, err := a.Source.Load()
	if took := time.Since(start); err == nil && took >= slowRead {
		a.Log.Info("objects read", "services", len(u.Services), "duration", took.Round(time.Millisecond))
	}
	return u, err
}

// loadPace is the time between two log lines about a load (12.68).
const loadPace = 5 * time.Second

// paceParts calls beat for each part of a load, and logs now and then how many frontends
// the parts have so far, of how many: total is called for that alone.
func paceParts(parts iter.Seq[nft.Delta], total func() int, beat func(), log *slog.Logger) iter.Seq[nft.Delta] {
	return func(yield func(nft.Delta) bool) {
		frontends, last := 0, time.Now()
		for part := range parts {
			beat()
			if now := time.Now(); now.Sub(last) >= loadPace {
				log.Info("loading rules", "frontends", frontends, "of", total())
				last = now
			}
			for _, t := range part.After.Tables {
				if s := t.Set(nft.ServicesMap); s != nil {
					frontends += len(s.Elements)
				}
			}
			if !yield(part) {
				return
			}
		}
	}
}

func frontendsOf(states map[model.ServiceName]model.ServiceState) (n int) {
	for _, s := range states {
		if s.Service == nil {
			continue
		}
		addresses := len(s.Service.ClusterIPs)
		if e := s.Service.External; e != nil {
			addresses += len(e.LoadBalancerIPs) + len(e.ExternalIPs)
		}
		n += addresses * len(s.Service.Ports)
	}
	return n
}
