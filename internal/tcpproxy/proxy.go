package tcpproxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

type Config struct {
	Router Router
	Sockets
	// Connections is the maximum number of concurrent connections, and OfFrontend the maximum through one frontend, so
	// that it cannot use up all of them.
	Connections, OfFrontend int
	// Refuse resets connections beyond a limit. Otherwise each one is accepted, and an idle one of the client with the
	// most ends for it.
	Refuse bool
	Log    *slog.Logger
}

// Router is a feature that forwards connections. It logs in its own words.
type Router interface {
	// Route returns where the connection of a client to a frontend goes. It is refused with a result other than
	// [Forwarded].
	Route(at model.Frontend, client *net.TCPConn) (Route, Result)
	// LogExceeded is called with the lock of the proxy when a connection exceeds a limit. It logs with [Proxy.Warn].
	LogExceeded(Exceeded)
	// LogFailure logs that no server has accepted a connection.
	LogFailure(at model.Frontend, r *Route, err error)
}

// Route is where a connection goes.
type Route struct {
	model.Relayed        // Timeout 0: the connection may be idle for any time
	Hops          uint8  // that the request to the server has left (TTL, hop limit); 0: as the machine sends it
	Header        []byte // that the server gets before the data of the client
}

// Exceeded is a limit that a connection exceeds.
type Exceeded struct {
	At          model.Frontend
	Connections int
	Whole       bool         // of all frontends
	Victim      netip.Prefix // the client whose connection ends; the zero value: the new one is refused
}

// Proxy forwards connections. They stay until one end closes them, or the process ends, even if their frontend goes.
type Proxy struct {
	Config
	// Retry is the pause before ports that could not be opened are tried again. It doubles up to lastRetry.
	Retry  time.Duration
	counts counts
	wake   chan struct{}
	active sync.WaitGroup
	warned atomic.Int64 // when the last warning was written

	mu        sync.Mutex
	all       *shares // of all frontends
	frontends map[model.Frontend]*frontend
}

// frontend is a forwarded one, or one that has connections: rules know a new one before the feature.
type frontend struct {
	forwarded   bool
	turn        atomic.Uint64            // of connections in turn
	connections map[*connection]struct{} // guarded by the lock of the proxy, as shares
	shares      *shares
}

func New(c Config) *Proxy {
	return &Proxy{
		Config: c, Retry: firstRetry, all: newShares(c.Connections), wake: make(chan struct{}, 1), frontends: make(map[model.Frontend]*frontend),
	}
}

// Wake has [Proxy.Run] open ports.
func (p *Proxy) Wake() {
	parallel.Signal(p.wake)
}

// Run calls open at each [Proxy.Wake], and again after pauses while it has not opened all ports, until ctx ends. Then it
// calls shut, which closes the ports, and waits for the end of all connections.
func (p *Proxy) Run(ctx context.Context, open func(context.Context) bool, shut func()) {
	var retry <-chan time.Time
	wait := p.Retry
	for {
		select {
		case <-ctx.Done():
			shut()
			p.active.Wait()
			return
		case <-p.wake:
			wait = p.Retry
		case <-retry:
			wait = min(2*wait, lastRetry)
		}
		retry = nil
		if !open(ctx) {
			retry = time.After(wait)
		}
	}
}

// SetForwarded says whether a frontend is forwarded, and reports whether that changes.
func (p *Proxy) SetForwarded(at model.Frontend, forwarded bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.frontends[at]
	if f == nil && !forwarded {
		return false
	}
	f = p.frontendAt(at)
	changed, f.forwarded = f.forwarded != forwarded, forwarded
	p.tidy(at, f)
	return changed
}

// Frontends returns the frontends that are forwarded (true), and others that still have connections.
func (p *Proxy) Frontends() map[model.Frontend]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[model.Frontend]bool, len(p.frontends))
	for at, f := range p.frontends {
		out[at] = f.forwarded
	}
	return out
}

// CloseOthers resets the connections through a frontend to servers other than some, which are sorted. A connection
// whose server is still dialled gets one of these.
func (p *Proxy) CloseOthers(at model.Frontend, but []model.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.frontends[at]
	if f == nil {
		return
	}
	for c := range f.connections {
		switch {
		case !c.to.IsValid():
			c.limited, c.allowed = true, but
		case !hasServer(but, c.to):
			c.pair.Reset()
		}
	}
}

// frontendAt returns the frontend at an address, a new one if there is none. The caller holds the
// lock.
func (p *Proxy) frontendAt(at model.Frontend) *frontend {
	f := p.frontends[at]
	if f == nil {
		f = &frontend{connections: make(map[*connection]struct{}), shares: newShares(p.OfFrontend)}
		p.frontends[at] = f
	}
	return f
}

// tidy forgets a frontend that is not forwarded and has no connection. The caller holds the lock.
func (p *Proxy) tidy(at model.Frontend, f *frontend) {
	if !f.forwarded && len(f.connections) == 0 {
		delete(p.frontends, at)
	}
}

const warnPause = time.Minute

// Warn logs what the proxy does to connections, at most once in a while.
func (p *Proxy) Warn(message string, attributes ...any) {
	now := time.Now().UnixNano()
	last := p.warned.Load()
	if last != 0 && now-last < int64(warnPause) || !p.warned.CompareAndSwap(last, now) {
		return
	}
	p.Log.Warn(message, attributes...)
}

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

func (c Closure) String() string { return [...]string{"limit", "idle"}[c] }

type counts struct {
	open    atomic.Int64
	total   [results]atomic.Uint64
	closed  [closures]atomic.Uint64
	retried atomic.Uint64
}

func (c *counts) add(r Result) { c.total[r].Add(1) }

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
