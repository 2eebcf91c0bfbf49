package probe

import (
	"errors"
	"net/netip"
	"slices"
	"time"
	"unique"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
	"github.com/nftproxy/nftproxy/internal/words"
)

// targetKey identifies a target, which all Services that ask for it share.
type targetKey struct {
	address  netip.AddrPort
	protocol model.Protocol        // zero: the one of the check
	how      unique.Handle[string] // it is checked
}

// activity is the state of a target in the schedule.
type activity uint8

const (
	idle    activity = iota // until it is due
	waiting                 // for other checks to end
	running
	hanging // longer than it may
)

type target struct {
	targetKey
	check   *model.Check
	service model.ServiceName // of a program, which may depend on it; otherwise of the first one
	checker checker.Checker   // made by the first check; of the check that runs
	users   []*service

	due     time.Time
	at      int // in the queue, or notQueued
	started time.Time
	state   activity
	spread  bool // the time of its checks is spread over the interval
	tried   bool // a check has ended

	decided  bool // there was a result; the first one decides
	healthy  bool
	warned   bool   // that it is not checked
	contrary uint16 // results in a row that contradict healthy
	since    time.Time
	checked  time.Time
	message  string

	passive passive
}

func (t *target) result() Result {
	return Result{Healthy: t.healthy, Since: t.since, Message: t.message, Checked: t.checked}
}

// words are the words for the Services that have the target.
func (t *target) words() words.Vocabulary {
	balances := 0
	for _, s := range t.users {
		if s.words() == words.Balance {
			balances++
		}
	}
	return words.Among(len(t.users), balances)
}

// record takes the result of a check.
func (e *Engine) record(t *target, now time.Time, err error) {
	if t.isPassive() {
		e.confirm(t, err, now)
		return
	}
	defer e.learned(t)
	t.message = ""
	if err != nil {
		t.message = err.Error()
	}
	var own *ownError
	switch {
	case errors.As(err, &own):
		if !t.warned {
			t.warned = true
			e.objectLog.Warn(t.words().Text("endpoint is not checked: it is an address of a Service of this node"), "endpoint", t.address, "service", own.service)
		}
		t.decided, t.contrary = false, 0
		e.set(t, true, now)
		return
	case errors.Is(err, checker.ErrLocal):
		e.report.local(t.words(), err, now, e.log)
		return
	}
	t.checked, t.warned = now, false
	ok := err == nil
	switch {
	case !t.decided:
		t.decided, t.contrary = true, 0
		if t.since.IsZero() {
			t.since = now
		}
		e.set(t, ok, now)
	case ok == t.healthy:
		t.contrary = 0
	default:
		most := t.check.Fall
		if ok {
			most = t.check.Rise
		}
		if t.contrary++; int(t.contrary) >= most {
			e.set(t, ok, now)
		}
	}
}

// set sets the health of a target, and notes the transitions of its Services.
func (e *Engine) set(t *target, healthy bool, now time.Time) {
	if t.healthy == healthy {
		return
	}
	t.healthy, t.since, t.contrary = healthy, now, 0
	for _, s := range t.users {
		if s.failing--; !healthy {
			s.failing += 2
		}
		tr := Transition{Service: s.name, Address: t.address.Addr(), Words: s.words(), Result: t.result()}
		if s.state.Service != nil {
			tr.Name = s.state.Service.NameOf(tr.Address)
		}
		if len(e.batch) == 0 {
			e.batchEnd = now.Add(batchTime)
			e.wakeFor(e.batchEnd)
		}
		e.batch = append(e.batch, tr)
	}
}

// acquire returns the target of a key for one more Service. A new one begins with the
// result of the check that it replaces, if any, and is checked immediately.
func (e *Engine) acquire(k targetKey, s *service, before *target, now time.Time) *target {
	t := e.targets[k]
	if t == nil {
		t = &target{targetKey: k, check: s.state.Service.Check, service: s.name, at: notQueued, healthy: true}
		if t.isPassive() {
			before, t.tried = nil, true // there is nothing to wait for
			e.watch(t, true)
		}
		if before != nil {
			t.healthy, t.since, t.checked, t.message = before.healthy, before.since, before.checked, before.message
		}
		e.targets[k] = t
		if !t.tried {
			e.unknown++
			e.schedule(t, now)
		}
	}
	t.users = append(t.users, s)
	if !t.healthy {
		s.failing++
	}
	return t
}

// release removes a Service from the users of a target, and forgets a target without
// users.
func (e *Engine) release(t *target, s *service) {
	i := slices.Index(t.users, s)
	t.users = slices.Delete(t.users, i, i+1)
	if !t.healthy {
		s.failing--
	}
	if len(t.users) > 0 {
		return
	}
	switch t.state {
	case running: // it is watched until it ends
	case waiting:
		e.poolOf(t).drop(t)
	default:
		e.unschedule(t)
	}
	e.learned(t)
	if t.isPassive() {
		e.watch(t, false)
	}
	delete(e.targets, t.targetKey)
}
