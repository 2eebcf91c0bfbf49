package localhost

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

const (
	// dialTimeout leaves time for three repeated SYNs: after 1, 3 and 7 seconds.
	dialTimeout = 10 * time.Second
)

// port is a NodePort in one family.
type port struct {
	server   *Server
	frontend model.Frontend
	open     atomic.Int64 // connections

	// The others are guarded by the server's lock.
	name     model.PortName
	listener *net.TCPListener // nil: the port is not open
	failure  error            // why, as reported
}

func (p *port) address() netip.AddrPort {
	return netip.AddrPortFrom(p.frontend.Address, p.frontend.Port)
}

func (p *port) portName() model.PortName {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.name
}

// close stops listening. Connections stay. The caller holds the lock.
func (p *port) close() {
	if p.listener != nil {
		p.listener.Close()
	}
}

// accept serves clients until the listener is closed.
func (p *port) accept(l *net.TCPListener) {
	s := p.server
	tcpproxy.Accept(s.ctx, l, func() { s.counts.add(AcceptFailed) }, func(client *net.TCPConn) {
		if !p.admit() {
			s.counts.add(Limited)
			tcpproxy.Reset(client)
			return
		}
		s.active.Go(func() {
			defer p.leave()
			p.forward(client)
		})
	})
}

// forward connects a client with an endpoint until the connection ends.
func (p *port) forward(client *net.TCPConn) {
	s := p.server
	to, ok := s.Target(p.frontend)
	if !ok {
		s.counts.add(Unserved)
		tcpproxy.Reset(client)
		return
	}
	endpoint, err := s.dial(s.ctx, to)
	if err != nil {
		s.counts.add(DialFailed)
		tcpproxy.Reset(client)
		s.Log.Debug("a connection to a NodePort on localhost failed", "address", p.address(), "service", p.portName(), "to", to, "error", err)
		return
	}
	s.counts.add(Forwarded)
	(&tcpproxy.Pair{Client: client, Server: endpoint}).Join(s.ctx)
}
