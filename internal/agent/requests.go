package agent

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is the progress of an agent.
type State struct {
	Started     time.Time // when New was called
	LastSync    time.Time // end of the last successful sync
	LastRequest time.Time // for a sync
	// Pending is the oldest request that no successful sync has served (10.6);
	// zero: there is none.
	Pending time.Time
}

// requests are the requests for syncs. The exported methods are part of [Agent].
type requests struct {
	asked   chan struct{} // a sync is requested
	changed atomic.Bool   // Load has changes
	moved   atomic.Bool   // Interfaces has changes
	awaited atomic.Int32  // number of commands that wait for a change

	mu     sync.Mutex
	state  State
	served time.Time // oldest request that the current sync serves
}

// Changed notifies the agent that Load has changes. It does not block and is safe
// for concurrent use.
func (r *requests) Changed() {
	r.changed.Store(true)
	r.requestSync()
}

// Hurry makes changes wait for no MinSyncPeriod until done is called: a command waits for
// one. It is safe for concurrent use.
func (r *requests) Hurry() (done func()) {
	r.awaited.Add(1)
	return func() { r.awaited.Add(-1) }
}

func (r *requests) addressesChanged() {
	r.moved.Store(true)
	r.requestSync()
}

func (r *requests) requestSync() {
	r.mu.Lock()
	r.state.LastRequest = time.Now()
	if r.state.Pending.IsZero() {
		r.state.Pending = r.state.LastRequest
	}
	r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default: // one is waiting already
	}
}

// State returns the agent's progress. It is safe for concurrent use.
func (r *requests) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	if !r.served.IsZero() {
		s.Pending = r.served
	}
	return s
}

// beginSync marks the requests so far as those that the next sync serves.
func (r *requests) beginSync() {
	select {
	case <-r.asked:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.served.IsZero() {
		r.served = r.state.Pending
	}
	r.state.Pending = time.Time{}
}

// endSync discards the served requests, unless the sync failed.
func (r *requests) endSync(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.served = time.Time{}
	}
}

func (r *requests) noteSuccess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.LastSync = time.Now()
}
