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
	to   netip.AddrPort // the zero value: no server has accepted
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
	at := model.Frontend{Address: dialled.Addr(), Protocol: model.TCP, Port: dialled.Port()}
	if err != nil {
		s.refuse(client, NotRelayed)
		return
	}
	r, ok := s.Relay(at)
	switch {
	case !ok:
		s.refuse(client, NotRelayed)
		return
	case len(r.Servers) == 0:
		s.refuse(client, NoServer)
		return
	}
	f, c := s.frontendAt(at), &connection{pair: splice.Pair{Client: client}}
	if !s.enter(f, c) {
		s.warn(at, r.Service, "the limit of one address and port", s.ofFrontend())
		s.refuse(client, Limited)
		return
	}
	defer s.leave(f, c)
	s.forward(f, c, &r)
}

// frontendAt returns a relayed frontend; one that rules know before Update is a new one.
func (s *Server) frontendAt(at model.Frontend) *frontend {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frontends[at]
	if f == nil {
		f = newFrontend(at)
	}
	return f
}

func (s *Server) enter(f *frontend, c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f.connections) >= s.ofFrontend() {
		return false
	}
	f.connections[c] = struct{}{}
	return true
}

func (s *Server) leave(f *frontend, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(f.connections, c)
}

// forward connects a client with a server until the connection ends.
func (s *Server) forward(f *frontend, c *connection, r *model.Relayed) {
	client := addrPort(c.pair.Client.RemoteAddr())
	o := order{servers: r.Servers, scheduler: r.Scheduler, client: client.Addr(), turn: f.turn.Add(1) - 1}
	server, to, err := s.connect(&o)
	if err != nil {
		s.Log.Debug("a connection could not be relayed", "address", netip.AddrPortFrom(f.Address, f.Port), "service", r.Service, "error", err)
		s.refuse(c.pair.Client, DialFailed)
		return
	}
	s.mu.Lock()
	c.pair.Server, c.to = server, to
	s.mu.Unlock()
	if r.Use == model.ProxyV2Relay {
		if _, err := server.Write(header(client, netip.AddrPortFrom(f.Address, f.Port))); err != nil { // it fits into an empty buffer
			s.counts.add(DialFailed)
			c.pair.Reset()
			return
		}
	}
	s.counts.add(Forwarded)
	c.pair.Join(s.ctx)
}

// connect connects to a server. Further ones are tried while none has accepted: no data of the
// client is passed before.
func (s *Server) connect(o *order) (*net.TCPConn, netip.AddrPort, error) {
	all, cancel := context.WithTimeout(s.ctx, dialTimeout)
	defer cancel()
	var errs []error
	for try := range budget.RelayTries {
		e, last, ok := o.next()
		if !ok || all.Err() != nil {
			break
		}
		if try > 0 {
			s.counts.retried.Add(1)
		}
		ctx, done := all, func() {}
		if !last && try+1 < budget.RelayTries {
			ctx, done = context.WithTimeout(all, tryTimeout)
		}
		c, err := dial(ctx, e.Address())
		done()
		if err == nil {
			return c, e.Address(), nil
		}
		errs = append(errs, err)
	}
	return nil, netip.AddrPort{}, errors.Join(errs...)
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
