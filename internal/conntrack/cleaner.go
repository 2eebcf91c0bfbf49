package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Kernel is the part of connection tracking that a [Cleaner] needs.
type Kernel interface {
	// List calls f for every flow of a family and protocol. The error is EINTR
	// if flows may have been left out or listed twice.
	List(model.Family, model.Protocol, func(Flow)) error
	// ListUnanswered does the same for the flows of a family that had no answer and are
	// not translated, of all protocols. It may call f for others, too.
	ListUnanswered(model.Family, func(Flow)) error
	// Delete deletes flows, all of one family, and returns their number. Flows that no
	// longer exist are no error.
	Delete([]Flow) (int, error)
}

// Config holds the options of a [Cleaner].
type Config struct {
	// TCP also deletes entries of established TCP connections to endpoints that are gone,
	// unless the Service keeps them ([model.KeepOnFailure]). Otherwise, only Services with
	// [model.CloseOnFailure] lose them; of Services with a health check, those that wait for
	// their first answer are deleted.
	TCP bool
	// Rules are asked while Still is held, for established TCP connections and
	// without TCP: then the Cleaner does not know all frontends of TCP, and one that it
	// does not know takes precedence over a NodePort or range that it knows. They are also asked
	// about unanswered flows that may be older than their frontend; nil: these stay.
	Rules    Rules
	Observer Observer // nil: none
	Log      *slog.Logger
}

// Rules are what is served at present.
type Rules interface {
	// Owner returns the frontend that serves an address and port; false: there is none.
	Owner(model.Frontend) (model.Frontend, bool)
}

// Observer learns of every cleanup (9.12).
type Observer interface {
	Cleaned(f model.Family, took time.Duration, deleted int)
}

// Cleaner deletes entries to endpoints that are gone. Change records routes; Run
// or Clean does the work. Listing a million entries takes seconds, and changes of
// rules do not wait for that.
type Cleaner struct {
	Config
	kernel Kernel
	wake   chan struct{}
	still  sync.Mutex // held by Clean while it deletes, and by the caller while rules change

	mu        sync.Mutex   // guards the following
	known     []*frontends // by scope
	early     []*early     // by family
	nodePorts []netip.Addr // of the last Change
	followed  bool         // there was one
}

// New returns a cleaner that knows no frontends yet.
func New(k Kernel, c Config) *Cleaner {
	cleaner := &Cleaner{Config: c, kernel: k, wake: make(chan struct{}, 1)}
	for _, f := range model.Families {
		if c.Rules != nil {
			cleaner.early = append(cleaner.early, &early{family: f, clusterIPs: make(map[netip.Addr]struct{})})
		}
		cleaner.known = append(cleaner.known, newFrontends(scope{f, model.UDP}, false), newFrontends(scope{f, model.TCP}, c.TCP), newFrontends(scope{f, model.EchoProtocol(f)}, false))
	}
	return cleaner
}

// Still returns a lock to hold while rules change, until Change has returned. It
// prevents the deletion of entries that the new rules have made valid. The Cleaner
// holds it for a few milliseconds at most.
func (c *Cleaner) Still() sync.Locker { return &c.still }

// Change records the changes since the last call, and the addresses of NodePorts
// with the unspecified address. The rules for these must be in force (13.21). The
// changes are not retained.
func (c *Cleaner) Change(changes []model.RouteChange, nodePorts []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := make(copies)
	for i := range changes {
		if changes[i].Frontend.IsEcho() {
			c.takeEcho(&changes[i])
			continue
		}
		c.setRoute(changes[i].Frontend, changes[i].New, shared)
	}
	for _, fs := range c.known {
		fs.setNodePorts(nodePorts)
	}
	c.takeEarly(changes, nodePorts)
	parallel.Signal(c.wake)
}

// Run cleans up after every Change, until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.Clean()
		}
	}
}

// takeEcho records that other clients than before get answers to echo requests. A
// running ping is one flow, so all flows to the address are deleted, and the rules decide
// about the next request.
func (c *Cleaner) takeEcho(change *model.RouteChange) {
	if i := c.scopeOf(change.Frontend); i >= 0 && change.AnswersDiffer() {
		fs, at := c.known[i], netip.AddrPortFrom(change.Frontend.Address, 0)
		fs.known[at], fs.gone[at] = kept{}, struct{}{}
		fs.markChanged()
	}
}

func (c *Cleaner) scopeOf(f model.Frontend) int {
	s := scope{model.FamilyOf(f.Address), f.Protocol}
	return slices.IndexFunc(c.known, func(fs *frontends) bool { return fs.scope == s })
}

func (c *Cleaner) setRoute(f model.Frontend, route *model.Route, shared copies) {
	i := c.scopeOf(f)
	if i < 0 {
		return // its flows are never deleted
	}
	cleaned := route != nil && c.needsCleanup(route)
	switch at := netip.AddrPortFrom(f.Address, f.Port); {
	case f.IsRange() && cleaned:
		c.known[i].setRange(f, c.keptFlows(route, shared))
	case f.IsRange():
		c.known[i].removeRange(f, route == nil)
	case cleaned:
		c.known[i].set(at, c.keptFlows(route, shared))
	default:
		c.known[i].remove(at, route == nil)
	}
}

func (c *Cleaner) keptFlows(route *model.Route, shared copies) kept {
	closes := route.Service.Extra().OnFailure.Closes(c.TCP)
	return kept{shared.servingOf(route.Choice), clientsOf(route), route.Frontend.Protocol == model.TCP && closes != c.TCP}
}

// clientsOf returns the clients whose flows may continue, or nil if all may. Source ranges of
// the Kubernetes API alone concern new connections only, as with kube-proxy.
func clientsOf(route *model.Route) *model.Sources {
	if route.Service.Extra().Sources == nil {
		return nil
	}
	return route.Sources
}

// needsCleanup reports whether flows to a frontend are deleted. Listing the connections of a
// busy machine is expensive, so TCP is listed only where it helps: a client that
// waits for a silent endpoint sends its request for a connection again. Not for ranges: a
// port in one may belong to another Service. A relay ends its connections itself.
func (c *Cleaner) needsCleanup(route *model.Route) bool {
	if route.Relayed() {
		return false
	}
	return route.Frontend.Protocol != model.TCP || c.TCP || route.Service.Extra().OnFailure == model.CloseOnFailure ||
		route.Service.Check != nil && !route.Frontend.IsRange()
}

// Clean deletes the entries that the routes have made stale. It lists nothing
// where no frontend and no serving endpoint has changed (9.1). Failures are logged,
// and the next Change triggers a retry (9.10).
func (c *Cleaner) Clean() {
	for _, e := range c.early {
		c.cleanUp(cleanup{&e.progress, e.family, e, "deleted unanswered conntrack entries that were older than their frontend",
			"clients that began before a frontend came may wait until they give up", []any{"family", e.family}})
	}
	for _, fs := range c.known {
		success := "deleted stale conntrack entries"
		if fs.isEcho() {
			success = ""
		}
		c.cleanUp(cleanup{&fs.progress, fs.family, fs, success, "connections to endpoints that are gone, or of denied clients, may continue",
			[]any{"family", fs.family, "protocol", fs.protocol}})
	}
}

// progress is whether flows need a cleanup.
type progress struct {
	changed bool // since the last successful one
	version int  // counts the changes
}

func (p *progress) markChanged() {
	p.changed = true
	p.version++
}

// cleanup deletes flows that are found stale, and still are when the rules cannot change.
type cleanup struct {
	*progress
	family          model.Family
	flows           flows
	success, danger string // for the log; no success: it is not logged
	attributes      []any  // likewise
}

// flows are some that may be stale.
type flows interface {
	list(Kernel, func(Flow)) error
	// found reports whether one of the list is stale. stale is the same while Still and mu are held.
	found(*Cleaner, Flow) bool
	stale(*Cleaner, Flow) bool
	// forgetFormer forgets what the cleanup was for.
	forgetFormer()
}

func (fs *frontends) list(k Kernel, f func(Flow)) error { return k.List(fs.family, fs.protocol, f) }

func (fs *frontends) found(c *Cleaner, f Flow) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fs.ends(f)
}

func (fs *frontends) stale(c *Cleaner, f Flow) bool { return fs.ends(f) && !c.ofOther(fs, f) }

func (c *Cleaner) cleanUp(w cleanup) {
	c.mu.Lock()
	version, changed := w.version, w.changed
	c.mu.Unlock()
	if !changed {
		return
	}
	start := time.Now()
	deleted, err := c.sweepFlows(w.flows)
	took := time.Since(start)
	if c.Observer != nil {
		c.Observer.Cleaned(w.family, took, deleted)
	}
	if deleted > 0 && w.success != "" {
		c.Log.Info(w.success, append(w.attributes, "connections", deleted, "duration", took.Round(time.Microsecond))...)
	}
	if err != nil {
		c.Log.Error("conntrack cleanup failed: "+w.danger+"; the next sync retries", append(w.attributes, "error", err)...)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.version == version { // else another cleanup follows
		w.changed = false
		w.flows.forgetFormer()
	}
}

// step is how many entries are deleted while Still is held: a change of rules may
// have to wait for them.
const step = 256

// sweepFlows deletes the flows of a list that are found stale, and still are when the rules
// cannot change. The result of an interrupted listing is used before it is repeated (9.10).
func (c *Cleaner) sweepFlows(flows flows) (deleted int, err error) {
	err = netlinkio.Retry(netlinkio.Fades, func() error {
		var all []Flow
		listErr := flows.list(c.kernel, func(f Flow) {
			if flows.found(c, f) {
				all = append(all, f)
			}
		})
		for some := range slices.Chunk(all, step) {
			n, err := c.delete(flows, some)
			if deleted += n; err != nil {
				return errors.Join(listErr, err)
			}
		}
		return listErr
	})
	return deleted, err
}

func (c *Cleaner) delete(flows flows, some []Flow) (int, error) {
	c.still.Lock()
	defer c.still.Unlock()
	c.mu.Lock()
	some = slices.DeleteFunc(some, func(f Flow) bool { return !flows.stale(c, f) })
	c.mu.Unlock()
	return c.kernel.Delete(some)
}

func (fs *frontends) ends(f Flow) bool {
	if f.Protocol == model.TCP && !f.Opening {
		return fs.isEnded(f)
	}
	return fs.isStale(f)
}

// ofOther reports whether an established TCP connection is through a frontend of a Service
// that keeps them.
func (c *Cleaner) ofOther(fs *frontends, f Flow) bool {
	if f.Protocol != model.TCP || f.Opening || c.TCP || c.Rules == nil {
		return false
	}
	owner, served := c.Rules.Owner(model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()})
	return served && !fs.closesEstablished(owner)
}

// early finds flows of a family that are older than their frontend (9.41). A client that
// gets no answer sends again and again, which keeps its untranslated entry alive, and
// packets of an entry meet no rule. Nothing is lost with one that never had an answer.
//
// Only a frontend that comes can have such flows: one that is there translates, refuses or
// drops the first packet. So nothing is listed for any other change, and the kernel leaves
// out all entries that are answered or translated.
type early struct {
	family model.Family
	// clusterIPs have come since the last cleanup. They refuse whatever no frontend serves
	// (4.23).
	clusterIPs map[netip.Addr]struct{}
	progress   // of frontends that have come
}

func (c *Cleaner) takeEarly(changes []model.RouteChange, nodePorts []netip.Addr) {
	for _, e := range c.early {
		for i := range changes {
			if change := &changes[i]; change.Old == nil && change.New != nil && !change.Frontend.IsEcho() && model.FamilyOf(change.Frontend.Address) == e.family {
				if change.New.Kind == model.ClusterIP {
					e.clusterIPs[change.Frontend.Address] = struct{}{}
				}
				e.markChanged()
			}
		}
		if c.followed && slices.ContainsFunc(nodePorts, func(a netip.Addr) bool {
			return model.FamilyOf(a) == e.family && !slices.Contains(c.nodePorts, a)
		}) {
			e.markChanged()
		}
	}
	if c.followed = true; !slices.Equal(nodePorts, c.nodePorts) {
		c.nodePorts = slices.Clone(nodePorts)
	}
}

func (e *early) list(k Kernel, f func(Flow)) error { return k.ListUnanswered(e.family, f) }

func (e *early) found(c *Cleaner, f Flow) bool {
	c.still.Lock()
	defer c.still.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.stale(c, f)
}

func (e *early) forgetFormer() { e.clusterIPs = make(map[netip.Addr]struct{}) } // clear would keep its size

// stale reports whether the rules decide otherwise about the flow now, because it is older
// than the frontend. Still is held.
func (e *early) stale(c *Cleaner, f Flow) bool {
	if f.Answered || f.Answers != f.Dialled || f.Protocol == model.TCP && !f.Opening {
		return false
	}
	if _, refuses := e.clusterIPs[f.Dialled.Addr()]; refuses {
		return true
	}
	_, served := c.Rules.Owner(model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()})
	return served
}
