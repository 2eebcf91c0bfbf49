package tcpproxy

import "sync/atomic"

// Result is the outcome of a connection.
type Result uint8

const (
	Forwarded    Result = iota // to a server
	Limited                    // refused, or ended for a newer one before a server has accepted: too many connections
	NoServer                   // refused: no server takes connections
	NoEndpoint                 // refused: no frontend leads to an endpoint
	DialFailed                 // refused: no server accepted
	NotRelayed                 // refused: no rule has redirected it, or its frontend is gone
	Looped                     // refused: it has passed too many relays
	AcceptFailed               // none: the kernel had no connection to give
	results
)

// String returns the value of a label.
func (r Result) String() string {
	return [...]string{"forwarded", "limit", "no_server", "no_endpoint", "dial_failed", "not_relayed", "loop", "accept_failed"}[r]
}

// Closure is why this process ends a connection that it forwards.
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

// Counts are the numbers of a proxy.
type Counts struct {
	Connections int64             // at present
	Total       map[Result]uint64 // since the start, as are the others
	Closed      map[Closure]uint64
	Retried     uint64 // how often another server was tried
}

// Counts returns the numbers, with the results that connections of a feature can have.
func (p *Proxy) Counts(possible ...Result) Counts {
	c := Counts{Connections: p.counts.open.Load(), Total: make(map[Result]uint64), Closed: make(map[Closure]uint64), Retried: p.counts.retried.Load()}
	for _, r := range possible {
		c.Total[r] = p.counts.total[r].Load()
	}
	for why := range closures {
		c.Closed[why] = p.counts.closed[why].Load()
	}
	return c
}
