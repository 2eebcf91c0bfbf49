package source

import (
	"sync"
	"time"
)

// State reports whether a source can be used.
type State struct {
	// Err is why the source, or a part of it, cannot be used now; nil: it can. What
	// was read before stays in use.
	Err error
	// Since is when the source became unusable, or usable again.
	Since time.Time
	// Warnings are about objects that are used, but not as their author may
	// expect; the first ones, if there are many.
	Warnings []string
	// Warned is how many warnings there are.
	Warned int
	// LastSuccess is when the source was read last; zero: never. An API server
	// counts as read at each list, watch and event.
	LastSuccess time.Time
	// Failures is how many attempts to read the source have failed.
	Failures uint64
}

// stateKeeper keeps the [State] of files. It is safe for concurrent use.
type stateKeeper struct {
	mu    sync.Mutex
	state State
}

// set records an attempt to read the source.
func (k *stateKeeper) set(err error, warnings Errors, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.state
	if (err == nil) != (s.Err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.Err = err
	if err != nil {
		s.Failures++
		return
	}
	s.read(warnings, now)
}

// setPartly records that the source was read, except for some files.
func (k *stateKeeper) setPartly(err error, warnings Errors, now time.Time) {
	k.set(err, nil, now)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.read(warnings, now)
}

func (s *State) read(warnings Errors, now time.Time) {
	s.LastSuccess = now
	s.Warnings, s.Warned = warnings.Lines(), len(warnings)
}

func (k *stateKeeper) get() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}
