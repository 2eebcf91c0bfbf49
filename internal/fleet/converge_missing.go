package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"
)

// missing are the nodes that do not have a change, with their agents.
type missing map[string]*missed

type missed struct {
	agents []Agent
	why    string // empty: it has not answered yet
	silent bool   // no agent answers
}

func newMissing(agents []Agent) missing {
	m := make(missing)
	for _, a := range agents {
		if m[a.Node] == nil {
			m[a.Node] = new(missed)
		}
		m[a.Node].agents = append(m[a.Node].agents, a)
	}
	return m
}

func (m missing) agents() (all []Agent) {
	for _, of := range m {
		all = append(all, of.agents...)
	}
	slices.SortFunc(all, compareAgents)
	return all
}

func (m missing) answering() []Agent {
	return slices.DeleteFunc(m.agents(), func(a Agent) bool { return m[a.Node].silent })
}

func (m missing) because(node, why string) { m[node].why, m[node].silent = why, false }

// failed notes the error of an agent. A question that the end of the round cuts off says nothing
// new.
func (m missing) failed(a *Agent, err error, wait time.Duration) {
	of := m[a.Node]
	if errors.Is(err, context.DeadlineExceeded) && of.why != "" {
		return
	}
	of.why = err.Error()
	if of.silent = errors.Is(err, ErrSilent) || errors.Is(err, context.DeadlineExceeded); of.silent {
		of.why = fmt.Sprintf("no answer within %s: is the process stopped?", wait)
	}
	if a.State != "" {
		of.why = a.State
	}
}

// exchange is a question and its answer, on the clock of this machine. It is safe for concurrent
// use: a connection may end late.
type exchange struct {
	mu             sync.Mutex
	asked, arrived time.Time
}

// trace returns a context with which a request notes its times. The time to connect is not among
// them.
func (e *exchange) trace(ctx context.Context) context.Context {
	note := func(at *time.Time) {
		e.mu.Lock()
		defer e.mu.Unlock()
		*at = time.Now()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { note(&e.asked) },
		GotFirstResponseByte: func() { note(&e.arrived) },
	})
}

// after returns how long after a time something happened that is as old as the answer says, and
// by how much that is too long at most. What happened before counts as at that time.
func (e *exchange) after(t time.Time, age float64) (took, excess time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.arrived.Add(-time.Duration(age * float64(time.Second)))
	return max(0, at.Sub(t)), e.arrived.Sub(e.asked)
}
