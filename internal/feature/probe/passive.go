package probe

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// Of a passive check: each time without a success in between, an endpoint is left out for twice
// as long as before, up to so many times its interval, and up to maxPause.
const (
	maxPauses = 32
	maxPause  = time.Hour
)

// confirmTime is how long an endpoint may take to accept the connection that confirms a failure:
// longer than one retransmission of the first packet.
const confirmTime = 2 * time.Second

// passive is the state of a target whose check is passive. What clients met only raises a doubt: a client
// can make its own connections fail at a healthy endpoint, with forged addresses also those of others. So
// the endpoint is left out only if a connection from this machine fails too.
type passive struct {
	window uint64        // the last outcomes, the newest in the lowest bit; 1: failed
	pause  time.Duration // how long it was left out last; zero: never, or long ago
	trial  bool          // the next outcome decides
	doubt  string        // what clients met, while a connection from this machine has to confirm it; empty: no doubt
}

// active returns the check that is made of a target.
func (t *target) active() *model.Check {
	if t.isPassive() {
		return &model.Check{Type: model.CheckTCP, Timeout: confirmTime}
	}
	return t.check
}

func (t *target) isPassive() bool { return t.check.Type == model.CheckPassive }

// Sampled takes the outcome of a connection that a client opened to an endpoint at a time, for
// the passive checks of Services; failure says how it failed, and is empty if it did not.
func (e *Engine) Sampled(to netip.AddrPort, failure string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, t := range e.passive[to] {
		e.sampled(t, failure, at, now)
	}
}

// watch has samples of a target counted, or no longer.
func (e *Engine) watch(t *target, on bool) {
	all := slices.DeleteFunc(e.passive[t.address], func(o *target) bool { return o == t })
	if on {
		all = append(all, t)
	}
	if e.passive[t.address] = all; len(all) == 0 {
		delete(e.passive, t.address)
	}
}

// sampled counts an outcome, unless the connection is older than the state of the target.
func (e *Engine) sampled(t *target, failure string, at, now time.Time) {
	if t.since.IsZero() {
		t.since = at
	}
	if !t.healthy || at.Before(t.since) {
		return
	}
	if t.checked = now; failure == "" {
		t.passive.window <<= 1
		t.accept("", now)
		return
	}
	t.passive.window = t.passive.window<<1 | 1
	c := t.check
	failed := bits.OnesCount64(t.passive.window & (1<<c.Of - 1))
	if t.passive.doubt != "" || failed < c.Failures && !t.passive.trial {
		return
	}
	text := fmt.Sprintf("passive: %d of the last %d sampled connections failed, the last one was %s", failed, c.Of, failure)
	if t.passive.trial {
		text = "passive: on trial, the first sampled connection was " + failure
	}
	if !e.spares(t, text) {
		t.passive.doubt = text
		e.schedule(t, now)
	}
}

func (t *target) accept(message string, now time.Time) {
	t.message = message
	if t.passive.trial = false; now.Sub(t.since) >= t.passive.pause {
		t.passive.pause = 0
	}
}

// confirm takes the result of a connection from this machine to a target in doubt.
func (e *Engine) confirm(t *target, err error, now time.Time) {
	text := t.passive.doubt
	t.passive.doubt, t.passive.window, t.checked = "", 0, now
	switch {
	case err == nil:
		t.accept(text+"; it is not left out, because it accepts connections from this machine", now)
	case errors.Is(err, checker.ErrLocal), errors.Is(err, errHangs):
		t.message = text + "; it is not left out: " + err.Error()
	case !e.spares(t, text):
		t.message = text + "; from this machine: " + err.Error()
		e.leaveOut(t, now)
	}
}

// spares reports whether a target that fails stays in use because a Service would have less than half of its endpoints
// of a family without it.
func (e *Engine) spares(t *target, text string) bool {
	needed := slices.ContainsFunc(t.users, func(s *service) bool {
		out, all := s.leftOut(model.FamilyOf(t.address.Addr()))
		return 2*(len(out)+1) > all
	})
	if needed {
		t.message = text + t.words().Text("; it is not left out, because half of the endpoints are")
	}
	return needed
}

// leftOut returns the targets of a family that fail, and the number of all.
func (s *service) leftOut(f model.Family) (out []*target, all int) {
	for _, m := range s.members {
		if model.FamilyOf(m.address) != f {
			continue
		}
		if all++; !m.target.healthy {
			out = append(out, m.target)
		}
	}
	return out, all
}

func (e *Engine) leaveOut(t *target, now time.Time) {
	interval := t.check.Interval
	pause := min(max(2*t.passive.pause, interval), maxPauses*interval, max(maxPause, interval))
	t.passive = passive{pause: pause}
	e.set(t, false, now)
	e.schedule(t, now.Add(pause))
}

// tryAgain gives a target that was left out connections again. The first one decides.
func (e *Engine) tryAgain(t *target, now time.Time) {
	e.unschedule(t)
	t.passive.trial, t.message = true, ""
	e.set(t, true, now)
}

// spare has endpoints return until at most half of a Service's are left out in each family, the
// ones first that would return first.
func (e *Engine) spare(s *service, now time.Time) {
	for _, f := range model.Families {
		out, all := s.leftOut(f)
		slices.SortFunc(out, func(a, b *target) int { return a.due.Compare(b.due) })
		for ; 2*len(out) > all; out = out[1:] {
			e.tryAgain(out[0], now)
		}
	}
}

// Passive returns the Services with a passive check, sorted.
func (e *Engine) Passive() []model.ServiceName {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []model.ServiceName
	for name, s := range e.services {
		if s.state.Service.Check.Type == model.CheckPassive {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, model.ServiceName.Compare)
	return names
}
