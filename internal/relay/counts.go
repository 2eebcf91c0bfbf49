package relay

import (
	"sync/atomic"
	"time"
)

// Result is the outcome of a connection.
type Result uint8

const (
	Forwarded    Result = iota // to a server
	Limited                    // refused: too many connections
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

// counts are the numbers since the start.
type counts struct {
	open    atomic.Int64
	total   [results]atomic.Uint64
	retried atomic.Uint64
}

func (c *counts) add(r Result) { c.total[r].Add(1) }

// Counts is the state of a server.
type Counts struct {
	Frontends   int               // that are relayed
	Connections int64             // at present
	Total       map[Result]uint64 // since the start
	Retried     uint64            // how often another server was tried
}

// Counts returns the state.
func (s *Server) Counts() Counts {
	c := Counts{Connections: s.counts.open.Load(), Total: make(map[Result]uint64), Retried: s.counts.retried.Load()}
	for r := range results {
		c.Total[r] = s.counts.total[r].Load()
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

// admit counts a connection, unless that would exceed the limit.
func (s *Server) admit() bool {
	if s.counts.open.Add(1) <= int64(s.Connections) {
		return true
	}
	s.counts.open.Add(-1)
	s.warn("because", "the limit of all relayed Balances", "connections", s.Connections)
	return false
}

// warnPause is the minimum time between two warnings about limits.
const warnPause = time.Minute

// warn logs a refused connection, at most once in a while.
func (s *Server) warn(attributes ...any) {
	now := time.Now().UnixNano()
	last := s.warned.Load()
	if last != 0 && now-last < int64(warnPause) || !s.warned.CompareAndSwap(last, now) {
		return
	}
	s.Log.Warn("connections to a relayed Balance are refused", attributes...)
}
