package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

const (
	// dialTimeout is the time for all tries together. It leaves time for three repeated SYNs:
	// after 1, 3 and 7 seconds.
	dialTimeout = 10 * time.Second
	// tryTimeout is the time for one server while there is another one: for one repeated SYN.
	tryTimeout = 2 * time.Second
)

// connection is a client with its server. What it has is guarded by the lock of the server.
type connection struct {
	pair tcpproxy.Pair
	hops uint8          // that its first packet had left; 0: unknown
	to   netip.AddrPort // the zero value: no server has accepted
	// limited reports that servers have left since it was made, which close their connections, and
	// allowed are the servers that have not, sorted.
	limited bool
	allowed []model.Endpoint

	from  netip.Prefix // its client
	of    *frontend
	timer *time.Timer // ends it when it is idle; nil: it has no server yet
	ended bool        // it is none of the frontend's any more
}

// accept serves clients until the listener is closed.
func (s *Server) accept(l *net.TCPListener) {
	tcpproxy.Accept(s.ctx, l, func() { s.counts.add(AcceptFailed) }, func(client *net.TCPConn) {
		s.counts.open.Add(1)
		s.active.Go(func() {
			defer s.counts.open.Add(-1)
			s.serve(client)
		})
	})
}

// refuse resets the connection of a client.
func (s *Server) refuse(client *net.TCPConn, why Result) {
	s.counts.add(why)
	tcpproxy.Reset(client)
}

// serve relays the connection of a client until it ends. One that the rules have not redirected
// is none: the lists and limits of clients are in the rules.
func (s *Server) serve(client *net.TCPConn) {
	dialled, err := original(client)
	if err != nil {
		s.refuse(client, NotRelayed)
		return
	}
	s.relay(model.Frontend{Address: dialled.Addr(), Protocol: model.TCP, Port: dialled.Port()}, client)
}

// relay relays the connection of a client that has dialled a frontend.
func (s *Server) relay(at model.Frontend, client *net.TCPConn) {
	c := &connection{pair: tcpproxy.Pair{Client: client}, hops: hops(client), from: fair.ClientOf(addrPort(client.RemoteAddr()).Addr())}
	f := s.enter(at, c)
	defer s.leave(at, c)
	r, ok := s.Relay(at) // when changes find the connection
	dialled, why := netip.AddrPortFrom(at.Address, at.Port), Forwarded
	switch {
	case !ok:
		why = NotRelayed
	case 0 < c.hops && c.hops < leastHops:
		s.warn("connections to a relayed Balance are refused", "because", "they have passed too many relays: a server may send them back to this machine", "address", dialled, "service", r.Service)
		why = Looped
	case len(r.Servers) == 0:
		why = NoServer
	}
	if why != Forwarded {
		s.refuse(client, why)
		return
	}
	s.forward(f, c, &r, dialled)
}

// enter adds a connection to its frontend. If that exceeds a limit, another one ends.
func (s *Server) enter(at model.Frontend, c *connection) *frontend {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frontendAt(at)
	c.of = f
	f.connections[c] = struct{}{}
	for _, l := range []*shares{f.shares, s.all} {
		if victim := l.add(c); victim != nil {
			s.warn("the limit of relayed connections is reached: idle ones of the client with the most end for new ones", "connections", l.Max(),
				"address", netip.AddrPortFrom(at.Address, at.Port), "client", victim.from)
			s.end(victim, TooMany)
		}
	}
	return f
}

func (s *Server) leave(at model.Frontend, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
	s.tidy(at, c.of)
}

// forward connects a client with a server until the connection ends.
func (s *Server) forward(f *frontend, c *connection, r *model.Relayed, dialled netip.AddrPort) {
	client := addrPort(c.pair.Client.RemoteAddr())
	o := order{servers: r.Servers, scheduler: r.Scheduler, client: client.Addr(), turn: f.turn.Add(1) - 1}
	if err := s.connect(c, &o); err != nil {
		s.Log.Debug("a connection could not be relayed", "address", dialled, "service", r.Service, "error", err)
		why := DialFailed
		if errors.Is(err, errEnded) {
			why = Limited
		}
		s.refuse(c.pair.Client, why)
		return
	}
	s.watch(c, r.Timeout)
	if r.Use == model.ProxyV2Relay {
		if _, err := c.pair.Server.Write(header(client, dialled)); err != nil { // it fits into an empty buffer
			s.counts.add(DialFailed)
			c.pair.Reset()
			return
		}
	}
	s.counts.add(Forwarded)
	c.pair.Join(s.ctx)
}

// Reasons why a server that has accepted is not used.
var (
	errLeft  = errors.New("the server has failed or left meanwhile")
	errEnded = errors.New("the connection has ended for a newer one")
)

// connect connects to a server. Further ones are tried while none has accepted: no data of the
// client is passed before.
func (s *Server) connect(c *connection, o *order) error {
	all, cancel := context.WithTimeout(s.ctx, dialTimeout)
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
			s.counts.retried.Add(1)
		}
		ctx, done := all, func() {}
		if !last && try+1 < budget.RelayTries {
			ctx, done = context.WithTimeout(all, tryTimeout)
		}
		server, err := s.dial(ctx, e.Address(), c.hops)
		done()
		switch {
		case err != nil:
			errs = append(errs, err)
		default:
			err = s.assign(c, server, e.Address())
			if err == nil {
				return nil
			}
			tcpproxy.Reset(server)
			if errs = append(errs, err); errors.Is(err, errEnded) {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// assign gives a connection its server, unless that has left while it was dialled and closes its
// connections: from now on, changes find it.
func (s *Server) assign(c *connection, server *net.TCPConn, to netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.ended:
		return errEnded
	case c.limited && !has(c.allowed, to):
		return errLeft
	}
	c.pair.Server, c.to = server, to
	return nil
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
