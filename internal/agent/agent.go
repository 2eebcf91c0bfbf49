// Package agent is the daemon: it keeps the kernel at what a source says.
package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Config is what an agent needs.
type Config struct {
	// Load returns what the source says now. After an error the rules stay as
	// they are until the next change of the source.
	Load func() (*model.Snapshot, error)
	// Node is the configuration of the node.
	Node model.Config
	// Addresses returns the addresses of the node's interfaces, where NodePorts
	// depend on them; else nil.
	Addresses func() ([]netip.Addr, error)
	// Applier commits.
	Applier *apply.Applier
	// AffinityUse tells how full the affinity maps are.
	AffinityUse func() ([]apply.AffinityUse, error)
	// MinSyncPeriod passes at least between the end of one sync and the next
	// one that a change asks for; changes meanwhile travel together (13.5).
	MinSyncPeriod time.Duration
	// Log receives what happens; the steady state is quiet.
	Log *slog.Logger
}

// Agent applies a source for as long as it runs.
type Agent struct {
	Config
	notices []model.Notice        // reported last
	failed  bool                  // the last apply
	full    map[model.Family]bool // affinity maps that are reported as full
}

// New returns an agent.
func New(c Config) *Agent { return &Agent{Config: c, full: make(map[model.Family]bool)} }

// affinityCheck is the time between looks at the affinity maps.
const affinityCheck = time.Minute

// Wait after a failed commit before the next attempt, doubled each time.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Run applies the source at once and again whenever changed delivers, until
// ctx ends. The rules stay in place then. A failed commit is tried again. A
// source that cannot be used at the start is an error: nothing is there yet
// that could go on working.
func (a *Agent) Run(ctx context.Context, changed <-chan struct{}) error {
	snapshot, err := a.Load()
	if err != nil {
		return err
	}
	check := time.NewTicker(affinityCheck)
	defer check.Stop()
	var retry, due <-chan time.Time
	var last time.Time // end of the last sync
	wait := firstRetry
	sync := func() {
		if retry = nil; !a.sync(snapshot) {
			retry = time.After(wait)
			wait = min(2*wait, lastRetry)
		}
		last = time.Now()
	}
	for sync(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			a.checkAffinity()
		case <-retry:
			sync()
		case <-changed:
			if due == nil {
				due = time.After(a.MinSyncPeriod - time.Since(last))
			}
		case <-due:
			due = nil
			next, err := a.Load()
			if err != nil {
				a.Log.Error("source cannot be used; the rules stay as they are", "error", err)
				continue
			}
			snapshot, wait = next, firstRetry
			sync()
		}
	}
}

// checkAffinity warns once when an affinity map gets full, and again after it
// had room.
func (a *Agent) checkAffinity() {
	maps, err := a.AffinityUse()
	if err != nil {
		a.Log.Error("use of the affinity maps is unknown", "error", err)
		return
	}
	for _, m := range maps {
		full := m.Used >= m.Size/10*9
		if full && !a.full[m.Family] {
			a.Log.Warn("affinity map is nearly full: further clients are served but not remembered; raise --affinity-size",
				"family", m.Family, "clients", m.Used, "size", m.Size)
		}
		a.full[m.Family] = full
	}
}

// sync applies a snapshot. It returns false if that is worth another attempt.
func (a *Agent) sync(snapshot *model.Snapshot) bool {
	start := time.Now()
	node := a.Node
	if a.Addresses != nil {
		var err error
		if node.InterfaceAddresses, err = a.Addresses(); err != nil { // 6.10
			a.Log.Error("addresses of the node are unknown", "error", err)
		}
	}
	routing := model.Resolve(snapshot, node)
	a.report(routing.Notices)
	plan, err := a.Applier.Apply(render.Render(routing))
	if err != nil {
		a.Log.Error("rules cannot be applied; they stay as they are", "error", err)
		a.failed = true
		return false
	}
	if !plan.Empty() || a.failed {
		a.Log.Info("rules applied", "services", len(snapshot.Services), "frontends", len(routing.Routes),
			"added", plan.Count(apply.Add), "changed", plan.Count(apply.Replace), "deleted", plan.Count(apply.Delete),
			"duration", time.Since(start).Round(time.Microsecond))
	}
	a.failed = false
	return true
}

// report logs the notices that were not there the last time.
func (a *Agent) report(notices []model.Notice) {
	for _, n := range notices {
		if !slices.Contains(a.notices, n) {
			a.Log.Warn(n.Message, "object", n.Object)
		}
	}
	a.notices = notices
}
