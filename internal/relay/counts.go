package relay

import (
	"sync/atomic"
	"time"
)

// Result is the outcome of a connection.
type Result uint8

const (
	Forwarded    Result = iota // to a server
	Limited                    // ended for a newer one before a server has accepted
	NoServer                   // refused: no server takes connections, or each is relayed itself
	DialFailed                 // refused: no server accepted
	NotRelayed                 // refused: the client dialled the port itself, or the Balance is gone
	Looped                     // refused: it has passed too many relays
	AcceptFailed               // none: the kernel had no connection to give
	results
)

// String returns the value of a label.
func (r Result) String() string {
	return [...]string{"forwarded", "limit", "no_server", "dial_failed", "not_relayed", "loop", "accept_failed"}[r]
}

// Closure is why this process ends a connection that it relays.
type Closure uint8

const (
	TooMany     Closure = iota // for a newer one
	IdleTooLong                // without data
	closures
)

// String returns the value of a label.
func (c Closure) String() string { return [...]string{"limit", "idle"}[c] }

// counts are the numbers since the start.
type counts struct {
	open    atomic.Int64
	total   [results]atomic.Uint64
	closed  [closures]atomic.Uint64
	retried atomic.Uint64
}

func (c *counts) add(r Result) { c.total[r].Add(1) }

// Counts is the state of a server.
type Counts struct {
	Frontends   int               // that are relayed
	Connections int64             // at present
	Total       map[Result]uint64 // since the start
	Closed      map[Closure]uint64
	Retried     uint64 // how often another server was tried
}

// Counts returns the state.
func (s *Server) Counts() Counts {
	c := Counts{Connections: s.counts.open.Load(), Total: make(map[Result]uint64), Closed: make(map[Closure]uint64), Retried: s.counts.retried.Load()}
	for r := range results {
		c.Total[r] = s.counts.total[r].Load()
	}
	for why := range closures {
		c.Closed[why] = s.counts.closed[why].Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.frontends {
		if f.relayed {
			c.Frontends++
		}
	}
	return c
}

// ofFrontend is how many connections one frontend may have, so that it cannot use up all.
func (s *Server) ofFrontend() int { return max(1, s.Connections/2) }

// warnPause is the minimum time between two warnings about limits.
const warnPause = time.Minute

// warn logs what limits do to connections, at most once in a while.
func (s *Server) warn(message string, attributes ...any) {
	now := time.Now().UnixNano()
	last := s.warned.Load()
	if last != 0 && now-last < int64(warnPause) || !s.warned.CompareAndSwap(last, now) {
		return
	}
	s.Log.Warn(message, attributes...)
}
