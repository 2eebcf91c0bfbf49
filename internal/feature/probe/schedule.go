package probe

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/words"
)

// queue is a heap of targets by the time when something is due: a check, or the end of
// one that runs.
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(x any) {
	t := x.(*target)
	t.at = len(*q)
	*q = append(*q, t)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	t.at = notQueued
	return t
}

const notQueued = -1

func (e *Engine) schedule(t *target, due time.Time) {
	t.due = due
	if t.at == notQueued {
		heap.Push(&e.queue, t)
	} else {
		heap.Fix(&e.queue, t.at)
	}
	e.wakeFor(due)
}

func (e *Engine) unschedule(t *target) {
	if t.at != notQueued {
		heap.Remove(&e.queue, t.at)
	}
	if len(e.queue) == 0 {
		e.queue = nil // an emptied one keeps its largest size
	}
}

// pool limits how many checks of a kind run at the same time.
type pool struct {
	limit   int
	running int
	waiting []*target
}

// next returns a target that waits and may be checked now, or nil.
func (p *pool) next() *target {
	if len(p.waiting) == 0 {
		p.waiting = nil
		return nil
	}
	if p.running >= p.limit {
		return nil
	}
	t := p.waiting[0]
	p.waiting[0], p.waiting = nil, p.waiting[1:]
	return t
}

func (p *pool) drop(t *target) {
	p.waiting = slices.DeleteFunc(p.waiting, func(o *target) bool { return o == t })
}

func (e *Engine) poolOf(t *target) *pool {
	if t.check.Type == model.CheckExec {
		return &e.programs
	}
	return &e.network
}

// dueNow starts the check of a target, or ends the wait for one that hangs.
func (e *Engine) dueNow(ctx context.Context, t *target, now time.Time) {
	e.unschedule(t)
	if t.isPassive() && t.passive.doubt == "" {
		if !t.healthy {
			e.tryAgain(t, now)
		}
		return
	}
	if t.state == running {
		t.state = hanging
		e.poolOf(t).running--
	}
	if t.state == hanging {
		if len(t.users) > 0 {
			e.record(t, now, errHangs)
			if !t.isPassive() {
				e.schedule(t, now.Add(t.check.Interval))
			}
		}
		return
	}
	if p := e.poolOf(t); p.running >= p.limit || len(p.waiting) > 0 {
		t.state = waiting
		p.waiting = append(p.waiting, t)
		return
	}
	e.start(ctx, t, now)
}

var errHangs = errors.New("the check does not end")

func (e *Engine) start(ctx context.Context, t *target, now time.Time) {
	e.poolOf(t).running++
	t.state, t.started = running, now
	e.schedule(t, now.Add(t.active().Timeout+grace))
	e.checks.Add(1)
	go e.run(ctx, t)
}

func (e *Engine) run(ctx context.Context, t *target) {
	defer e.checks.Done()
	begin := time.Now()
	err := e.attempt(ctx, t)
	now := time.Now()
	if ctx.Err() != nil {
		return
	}
	e.metrics.countCheck(t.check.Type, now.Sub(begin), err)
	e.mu.Lock()
	defer e.mu.Unlock()
	late := t.state == hanging
	t.state = idle
	if !late {
		p := e.poolOf(t)
		if p.running--; len(p.waiting) > 0 {
			e.wakeFor(now)
		}
	}
	switch {
	case len(t.users) == 0: // it is gone
		e.unschedule(t)
	case late:
		e.schedule(t, now)
	case t.isPassive():
		e.unschedule(t)
		e.record(t, now, err)
	default:
		e.record(t, now, err)
		e.schedule(t, t.next(now))
	}
}

// attempt makes a check, unless that would say nothing about the endpoint. A panic says
// nothing either.
func (e *Engine) attempt(ctx context.Context, t *target) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("internal error in a health check, please report it", "target", t.address, "error", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: internal error: %v", checker.ErrLocal, p)
		}
	}()
	if f := model.FamilyOf(t.address.Addr()); !slices.Contains(e.node.Serving().Families(), f) {
		return fmt.Errorf("this machine has no %s", f)
	}
	if name, ok := e.own(t); ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		return &ownError{name, t.words()}
	}
	if t.checker == nil {
		if t.checker, err = e.maker.New(t.active(), checker.Target{Address: t.address, Protocol: t.protocol, Service: t.service, Ports: e.node.Ports}); err != nil {
			return err
		}
	}
	return t.checker.Check(ctx)
}

// ownError means that the address of an endpoint is one that our rules forward.
type ownError struct {
	service model.ServiceName
	in      words.Vocabulary
}

func (e *ownError) Error() string {
	return e.in.Sprintf(model.NotChecked+"the address belongs to Service %s, so that a check would reach any of its endpoints", e.service)
}

// Is makes it count as a check that says nothing about the endpoint.
func (e *ownError) Is(target error) bool { return target == checker.ErrLocal }

// own returns the Service that has the address of a target as a frontend.
func (e *Engine) own(t *target) (model.ServiceName, bool) {
	if t.check.Type == model.CheckExec {
		return model.ServiceName{}, false
	}
	f := model.Frontend{Address: t.address.Addr(), Port: t.address.Port(), Protocol: t.protocol}
	switch {
	case f.Protocol != 0:
	case t.check.Type == model.CheckUDP, t.check.Type == model.CheckDNS:
		f.Protocol = model.UDP
	default:
		f.Protocol = model.TCP
	}
	e.mu.Lock()
	name, ok := e.frontends[f]
	e.mu.Unlock()
	if !ok {
		return e.node.Serving().Serves(f)
	}
	return name, true
}

// next returns when a target is checked again. The checks of many targets are spread
// over the interval. While it is in doubt whether a healthy endpoint fails, checks
// follow faster, so that a failure is certain soon; recovery takes its time.
func (t *target) next(now time.Time) time.Time {
	interval := t.check.Interval
	wait := interval - interval/10 + rand.N(interval/5+1)
	switch {
	case !t.spread:
		t.spread = true
		wait = rand.N(interval) + 1
	case t.healthy && t.contrary > 0:
		wait = min(interval, max(interval/5, minDoubt))
	}
	if at := t.started.Add(wait); at.After(now) {
		return at
	}
	return now
}

// minDoubt is the shortest time between checks in doubt.
const minDoubt = 100 * time.Millisecond
