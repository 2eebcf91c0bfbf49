// Package probe checks the health of endpoints. An [Engine] schedules the checks that
// Services ask for, and marks endpoints that fail: it edits the objects of a source, so
// that health has the effects of readiness.
package probe

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/words"
)

const (
	// firstResults is how long the start waits for the first results (3.26).
	firstResults = 5 * time.Second
	// batchTime is how long results are collected before they change the rules: the
	// endpoints of a machine that dies fail together.
	batchTime = 10 * time.Millisecond
	// grace is how much longer than its timeout a check may take before it counts as
	// one that hangs.
	grace = time.Second
)

// maker makes checks.
type maker interface {
	// New returns the checker of a target.
	New(*model.Check, checker.Target) (checker.Checker, error)
	// Room returns how many checks may run at the same time now: over the network, and programs.
	Room() (network, programs int)
}

type Result = model.CheckResult

// Transition is a change of the health of an endpoint of a Service.
type Transition struct {
	Service model.ServiceName
	Address netip.Addr
	Name    string // of DNS that has the address; empty: none
	Words   words.Vocabulary
	Result
}

// Engine checks the endpoints of the Services that ask for it. It is an editor of a
// source. It keeps the result of a target while Services change, as long as they have the
// endpoint and the check, and forgets it then. While no Service has a check it holds no
// memory, and Run does nothing. Its methods are safe for concurrent use.
type Engine struct {
	node    *feature.Node
	maker   maker
	log     *slog.Logger
	metrics metrics

	mu       sync.Mutex // guards what follows
	services map[model.ServiceName]*service
	targets  map[targetKey]*target
	passive  map[netip.AddrPort][]*target // of them, the ones whose check is passive
	// frontends are the frontends of Services with a check: at the start, the node knows none.
	frontends map[model.Frontend]model.ServiceName
	queue     queue
	network   pool
	programs  pool
	unknown   int           // targets without a result
	known     chan struct{} // closed when unknown is zero; nil: nothing waits for that
	batch     []Transition
	batchEnd  time.Time // when the batch is reported, if it is not empty
	stepping  bool      // Run is at work
	wakeAt    time.Time // when it wakes otherwise; zero: when it is woken
	report    report
	objectLog *slog.Logger // of what authors of Services cause

	wake   chan struct{}
	checks sync.WaitGroup
}

// newEngine returns an engine without targets. One that does not run needs no maker.
func newEngine(n *feature.Node, m maker, log *slog.Logger) *Engine {
	e := &Engine{node: n, maker: m, log: log, metrics: newMetrics(), wake: make(chan struct{}, 1)}
	e.report.lines, e.objectLog = loglimit.Limiter(budget.HealthLines, reportTime), loglimit.New(log)
	e.empty()
	return e
}

// empty makes new maps: those that are emptied keep their largest size.
func (e *Engine) empty() {
	e.services, e.targets = make(map[model.ServiceName]*service), make(map[targetKey]*target)
	e.passive = make(map[netip.AddrPort][]*target)
	e.frontends = make(map[model.Frontend]model.ServiceName)
}

// Run makes checks until ctx ends.
func (e *Engine) Run(ctx context.Context, changed func(...model.ServiceName)) {
	defer e.end()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, batch := e.step(ctx, time.Now())
		if len(batch) > 0 {
			e.tell(batch) // first: what others note is of the sync that follows
			changed(namesOf(batch)...)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// end waits for the end of the checks, except for those that hang.
func (e *Engine) end() {
	ended := make(chan struct{})
	go func() {
		e.checks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(grace):
	}
}

func namesOf(batch []Transition) (names []model.ServiceName) {
	seen := make(map[model.ServiceName]struct{}, len(batch))
	for _, t := range batch {
		if _, ok := seen[t.Service]; !ok {
			seen[t.Service] = struct{}{}
			names = append(names, t.Service)
		}
	}
	return names
}

// step starts the checks that are due. It returns when the next step is due, and the
// transitions of the batch if that has ended.
func (e *Engine) step(ctx context.Context, now time.Time) (next time.Time, batch []Transition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stepping = true
	e.network.limit, e.programs.limit = e.maker.Room()
	for len(e.queue) > 0 && !e.queue[0].due.After(now) {
		e.dueNow(ctx, e.queue[0], now)
	}
	for _, p := range []*pool{&e.network, &e.programs} {
		for t := p.next(); t != nil; t = p.next() {
			e.start(ctx, t, now)
		}
	}
	if len(e.batch) > 0 && !e.batchEnd.After(now) {
		batch, e.batch = e.batch, nil
		e.report.add(batch, now, e.log)
	}
	e.report.end(now, e.log)
	e.stepping, e.wakeAt = false, e.nextStep()
	return e.wakeAt, batch
}

func (e *Engine) nextStep() (next time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(e.queue) > 0 {
		earlier(e.queue[0].due)
	}
	if len(e.batch) > 0 {
		earlier(e.batchEnd)
	}
	earlier(e.report.until)
	return next
}

// wakeFor wakes Run if it would wake later.
func (e *Engine) wakeFor(at time.Time) {
	if !e.stepping && (e.wakeAt.IsZero() || at.Before(e.wakeAt)) {
		e.wakeAt = at
		parallel.Signal(e.wake)
	}
}

// Await returns when each target has been checked once, or after [firstResults].
func (e *Engine) Await(ctx context.Context) error {
	e.mu.Lock()
	if e.unknown == 0 {
		e.mu.Unlock()
		return ctx.Err()
	}
	if e.known == nil {
		e.known = make(chan struct{})
	}
	known := e.known
	e.mu.Unlock()
	limit := time.NewTimer(firstResults)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-known:
	case <-limit.C:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.log.Warn(e.words().Text("starting before all endpoints have been checked; the others count as healthy"), "targets", len(e.targets), "unknown", e.unknown)
	}
	return nil
}

// learned counts one unknown target less.
func (e *Engine) learned(t *target) {
	if t.tried {
		return
	}
	t.tried = true
	if e.unknown--; e.unknown == 0 && e.known != nil {
		close(e.known)
		e.known = nil
	}
}

// Result returns the known health of an endpoint of a Service; false: it is not checked.
func (e *Engine) Result(name model.ServiceName, a netip.Addr) (Result, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.services[name].find(a); t != nil {
		return t.result(), true
	}
	return Result{}, false
}

// Late returns how many checks are due, and wait because too many run.
func (e *Engine) Late() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.network.waiting) + len(e.programs.waiting)
}

// Each calls f with the result of every endpoint of every Service that is checked, in no
// order. No check starts or ends meanwhile: f is quick, and does not call the engine.
func (e *Engine) Each(f func(model.ServiceName, netip.Addr, Result)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.services {
		for _, m := range s.members {
			f(s.name, m.address, m.target.result())
		}
	}
}
