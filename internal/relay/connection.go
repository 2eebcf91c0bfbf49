package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/splice"
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
	pair splice.Pair
	hops uint8          // that its first packet had left; 0: unknown
	to   netip.AddrPort // the zero value: no server has accepted
	// limited reports that servers have left since it was made, which close their connections, and
	// allowed are the servers that have not, sorted.
	limited bool
	allowed []model.Endpoint
}

// accept serves clients until the listener is closed.
func (s *Server) accept(l *net.TCPListener) {
	splice.Accept(s.ctx, l, func() { s.counts.add(AcceptFailed) }, func(client *net.TCPConn) {
		if !s.admit() {
			s.refuse(client, Limited)
			return
		}
		s.active.Go(func() {
			defer s.counts.open.Add(-1)
			s.serve(client)
		})
	})
}

// refuse resets the connection of a client.
func (s *Server) refuse(client *net.TCPConn, why Result) {
	s.counts.add(why)
	splice.Reset(client)
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
	c := &connection{pair: splice.Pair{Client: client}, hops: hops(client)}
	f, within := s.enter(at, c)
	defer s.leave(at, f, c)
	r, ok := s.Relay(at) // when changes find the connection
	dialled, why := netip.AddrPortFrom(at.Address, at.Port), Forwarded
	switch {
	case !ok:
		why = NotRelayed
	case !within:
		s.warn("because", "the limit of one address and port", "connections", s.ofFrontend(), "address", dialled, "service", r.Service)
		why = Limited
	case 0 < c.hops && c.hops < leastHops:
		s.warn("because", "they have passed too many relays: a server may send them back to this machine", "address", dialled, "service", r.Service)
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

// enter adds a connection to its frontend, and reports whether that may have one more.
func (s *Server) enter(at model.Frontend, c *connection) (f *frontend, within bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.frontendAt(at)
	if len(f.connections) >= s.ofFrontend() {
		return f, false
	}
	f.connections[c] = struct{}{}
	return f, true
}

func (s *Server) leave(at model.Frontend, f *frontend, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(f.connections, c)
	s.tidy(at, f)
}

// forward connects a client with a server until the connection ends.
func (s *Server) forward(f *frontend, c *connection, r *model.Relayed, dialled netip.AddrPort) {
	client := addrPort(c.pair.Client.RemoteAddr())
	o := order{servers: r.Servers, scheduler: r.Scheduler, client: client.Addr(), turn: f.turn.Add(1) - 1}
	if err := s.connect(c, &o); err != nil {
		s.Log.Debug("a connection could not be relayed", "address", dialled, "service", r.Service, "error", err)
		s.refuse(c.pair.Client, DialFailed)
		return
	}
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

// errLeft is the reason why a server that has accepted is not used.
var errLeft = errors.New("the server has failed or left meanwhile")

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
		case s.assign(c, server, e.Address()):
			return nil
		default:
			splice.Reset(server)
			errs = append(errs, errLeft)
		}
	}
	return errors.Join(errs...)
}

// assign gives a connection its server, unless that has left while it was dialled and closes its
// connections: from now on, changes find it.
func (s *Server) assign(c *connection, server *net.TCPConn, to netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.limited && !has(c.allowed, to) {
		return false
	}
	c.pair.Server, c.to = server, to
	return true
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
