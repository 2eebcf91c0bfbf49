// Package tcpproxy has the shared parts of servers that relay TCP connections: it keeps ports open, accepts
// clients, and moves data between two connections, in the kernel.
package tcpproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// dialTimeout is the time for all tries together. It leaves time for three repeated SYNs:
	// after 1, 3 and 7 seconds.
	dialTimeout = 10 * time.Second
	// tryTimeout is the time for one server while there is another one: for one repeated SYN.
	tryTimeout = 2 * time.Second
)

// connection is a client with its server. Its fields are guarded by the lock of the proxy.
type connection struct {
	pair Pair
	to   netip.AddrPort // the zero value: no server has accepted
	// limited reports that servers have left since it was made, which close their connections, and
	// allowed are the servers that have not, sorted.
	limited bool
	allowed []model.Endpoint

	from  netip.Prefix // its client
	of    *frontend
	timer *time.Timer // ends it when it is idle; nil: it has no server yet
	ended bool        // its frontend has forgotten it
}

// Serve forwards the connection of a client to a frontend until it ends.
func (p *Proxy) Serve(ctx context.Context, at model.Frontend, client *net.TCPConn) {
	c := &connection{pair: Pair{Client: client}, from: fair.ClientOf(EndOf(client.RemoteAddr()).Addr())}
	if !p.enter(at, c) {
		p.refuse(client, Limited)
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remove(c)
		p.tidy(at, c.of)
	}()
	r, result := p.Router.Route(at, client) // when changes find the connection
	if result == Forwarded {
		result = p.forward(ctx, at, c, &r)
	}
	if result != Forwarded {
		p.refuse(client, result)
	}
}

// enter adds a connection to its frontend. If that exceeds a limit, it is refused, or another one ends.
func (p *Proxy) enter(at model.Frontend, c *connection) (entered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.frontendAt(at)
	for _, l := range []*shares{p.all, f.shares} {
		if p.Refuse && l.Full() {
			p.Router.LogExceeded(Exceeded{At: at, Connections: l.Max(), Whole: l == p.all})
			p.tidy(at, f)
			return false
		}
	}
	c.of = f
	f.connections[c] = struct{}{}
	for _, l := range []*shares{f.shares, p.all} {
		if victim := l.add(c); victim != nil {
			p.Router.LogExceeded(Exceeded{At: at, Connections: l.Max(), Whole: l == p.all, Victim: victim.from})
			p.end(victim, TooMany)
		}
	}
	return true
}

// forward connects a client with a server until the connection ends. With a result other than [Forwarded], that is not
// counted yet, and the client is to be reset.
func (p *Proxy) forward(ctx context.Context, at model.Frontend, c *connection, r *Route) Result {
	o := order{servers: r.Servers, scheduler: r.Scheduler, client: EndOf(c.pair.Client.RemoteAddr()).Addr(), turn: c.of.turn.Add(1) - 1}
	if err := p.connect(ctx, c, &o, r.Hops); err != nil {
		if p.Router.LogFailure(at, r, err); errors.Is(err, errEnded) {
			return Limited
		}
		return DialFailed
	}
	p.watch(c, r.Timeout)
	if len(r.Header) > 0 {
		if _, err := c.pair.Server.Write(r.Header); err != nil { // it fits into an empty buffer
			c.pair.Reset()
			return DialFailed
		}
	}
	p.counts.add(Forwarded)
	c.pair.Join(ctx)
	return Forwarded
}

// Reasons why a server that has accepted is not used.
var (
	errLeft  = errors.New("the server has failed or left meanwhile")
	errEnded = errors.New("the connection has ended for a newer one")
)

// connect connects to a server. Further ones are tried while none has accepted: no data of the
// client is passed before.
func (p *Proxy) connect(ctx context.Context, c *connection, o *order, hops uint8) error {
	all, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs []error
	for try := range budget.RelayTries {
		if err := all.Err(); err != nil { // also before the first one: the process ends
			errs = append(errs, err)
			break
		}
		e, last, ok := o.next()
		if !ok {
			break
		}
		if try > 0 {
			p.counts.retried.Add(1)
		}
		within, done := all, func() {}
		if !last && try+1 < budget.RelayTries {
			within, done = context.WithTimeout(all, tryTimeout)
		}
		server, err := p.Dial(within, e.Address(), hops)
		done()
		if err == nil {
			if err = p.assign(c, server, e.Address()); err == nil {
				return nil
			}
			Reset(server)
		}
		if errs = append(errs, err); errors.Is(err, errEnded) {
			return err
		}
	}
	return errors.Join(errs...)
}

// assign gives a connection its server, unless that has left while it was dialled and closes its
// connections: from now on, changes find it.
func (p *Proxy) assign(c *connection, server *net.TCPConn, to netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.ended:
		return errEnded
	case c.limited && !hasServer(c.allowed, to):
		return errLeft
	}
	c.pair.Server, c.to = server, to
	return nil
}

// hasServer reports whether an address is that of one of the servers, which are sorted.
func hasServer(servers []model.Endpoint, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(servers, a, func(e model.Endpoint, a netip.AddrPort) int { return e.Address().Compare(a) })
	return found
}

// AddressOf returns the address and port that clients of a frontend dial.
func AddressOf(at model.Frontend) netip.AddrPort { return netip.AddrPortFrom(at.Address, at.Port) }

// EndOf returns the address and port of an end of a TCP connection, without a zone.
func EndOf(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// Pair is a connection of a client, and the one to its server.
type Pair struct {
	Client, Server *net.TCPConn
	once           sync.Once
}

// Join moves data both ways until both ends have closed their side, or one has reset the
// connection, or ctx ends, which resets both. If the process ends before, the kernel resets both: a
// cut answer does not look complete.
func (p *Pair) Join(ctx context.Context) {
	resetAtExit(p.Server)
	stop := context.AfterFunc(ctx, p.Reset)
	defer stop()
	var answers sync.WaitGroup
	answers.Go(func() { p.move(p.Client, p.Server) })
	p.move(p.Server, p.Client)
	answers.Wait()
	for _, c := range []*net.TCPConn{p.Client, p.Server} {
		c.SetLinger(-1) //nolint:errcheck // it is closed; the rest of the data is still on its way
		c.Close()
	}
}

// resetAtExit has the kernel reset a connection if the process ends before it closes it.
func resetAtExit(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // it fails if the other end has gone
}

// move moves data in one direction, and passes on its end: the other direction
// continues. The kernel moves the data: between two TCP connections, ReadFrom is
// splice(2).
func (p *Pair) move(to, from *net.TCPConn) {
	_, err := to.ReadFrom(from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		p.Reset()
	}
}

// Reset resets both connections, which ends both directions.
func (p *Pair) Reset() {
	p.once.Do(func() {
		Reset(p.Client)
		Reset(p.Server)
	})
}

// Reset closes a connection so that the other end sees "connection reset", not the end
// of the data.
func Reset(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // it fails if the other end has gone
	c.Close()
}
