// Package localhost serves NodePorts of TCP on the loopback addresses, which rules cannot:
// it listens there, and connects to another frontend of the Service, so that the rules
// choose the endpoint.
package localhost

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// Config has the parts and settings of a [Server].
type Config struct {
	// Target returns where a connection to a frontend goes; false: nowhere at present.
	Target func(model.Frontend) (netip.AddrPort, bool)
	// Failed is called if the port of a Service cannot be opened, once for each cause,
	// for at most [maxFailed] ports at a time.
	Failed func(model.ServiceName, error)
	Limits descriptors.LocalhostLimits
	Log    *slog.Logger
}

const maxFailed = 20

// Server listens for each NodePort of a Service with endpoints. Without endpoints nothing
// listens, and the kernel refuses connections, as the rules do elsewhere.
type Server struct {
	Config
	proxy    *tcpproxy.Proxy
	failures [len(model.Families)]atomic.Uint64
	// listen is replaced in tests.
	listen func(model.Frontend) (*net.TCPListener, error)

	mu      sync.Mutex
	changed map[model.Frontend]model.PortName // since the last pass; the zero name: not served
	ports   map[model.Frontend]*port
	closed  map[model.Frontend]*port // the ports that are not open, but should be

	reported map[model.Family]string // why a whole family could not listen
	others   bool                    // that other protocols are not served is logged
}

// port is a NodePort in one family. The lock of the server guards all but frontend.
type port struct {
	frontend model.Frontend
	name     model.PortName
	listener *net.TCPListener // nil: the port is not open
	failure  error            // why, as reported
}

// close stops listening. Connections stay.
func (p *port) close() {
	if p.listener != nil {
		p.listener.Close()
	}
}

// New returns a server that listens nowhere yet.
func New(c Config) *Server {
	s := &Server{
		Config: c, listen: listen, changed: make(map[model.Frontend]model.PortName), ports: make(map[model.Frontend]*port),
		closed: make(map[model.Frontend]*port), reported: make(map[model.Family]string),
	}
	s.proxy = tcpproxy.New(tcpproxy.Config{Router: s, Connections: c.Limits.Connections, OfFrontend: c.Limits.OfPort, Refuse: true, Log: c.Log})
	return s
}

// Update follows the changes of a successful sync. It does not wait for ports to be
// opened; [Server.Run] opens them. Calls must not overlap.
func (s *Server) Update(changes []model.RouteChange) {
	s.logOthers(changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if !c.Frontend.OnLocalhost() {
			continue
		}
		name := model.PortName{}
		if c.New != nil && c.New.Inside().Verdict == model.Forward {
			name = c.New.PortName()
		}
		s.changed[c.Frontend] = name
	}
	if len(s.changed) > 0 {
		s.proxy.Wake()
	}
}

// logOthers logs once that a Service has a NodePort of another protocol.
func (s *Server) logOthers(changes []model.RouteChange) {
	if s.others {
		return
	}
	var first *model.Route
	for i := range changes {
		r := changes[i].New
		if r != nil && r.Port.NodePort != 0 && r.Port.Protocol != model.TCP && (first == nil || r.PortName().Compare(first.PortName()) < 0) {
			first = r
		}
	}
	if first != nil {
		s.others = true
		s.Log.Warn("on localhost, only NodePorts of TCP are served", "service", first.Service.Name, "protocol", first.Port.Protocol)
	}
}

// Run opens and closes ports until ctx ends, then closes all of them and their
// connections.
func (s *Server) Run(ctx context.Context) {
	s.proxy.Run(ctx, func(ctx context.Context) bool {
		s.applyChanges()
		s.openClosed(ctx)
		return len(s.closed) == 0
	}, s.closePorts)
}

// applyChanges applies the changes, and closes ports.
func (s *Server) applyChanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, name := range s.changed {
		p := s.ports[f]
		switch {
		case name == (model.PortName{}) && p != nil:
			p.close()
			delete(s.ports, f)
			delete(s.closed, f)
		case name == (model.PortName{}):
		case p == nil:
			p = &port{frontend: f, name: name}
			s.ports[f], s.closed[f] = p, p
		default:
			p.name = name
		}
	}
	clear(s.changed)
}

// openClosed tries to open the ports that are not open, and reports what fails.
func (s *Server) openClosed(ctx context.Context) {
	if len(s.closed) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(s.closed), model.Frontend.Compare)
	r := newReport()
	for _, f := range all {
		p := s.closed[f]
		err := r.blocked[model.FamilyOf(f.Address)]
		if err == nil {
			err = s.openPort(ctx, p)
		}
		s.mu.Lock()
		if err == nil {
			delete(s.closed, f)
		}
		r.add(p, err)
		s.mu.Unlock()
	}
	s.report(r)
}

func (s *Server) openPort(ctx context.Context, p *port) error {
	if len(s.ports)-len(s.closed) >= s.Limits.Listeners {
		return errTooMany
	}
	l, err := s.listen(p.frontend)
	if err != nil {
		s.failures[familyIndex(p.frontend)].Add(1)
		return cause(err)
	}
	s.mu.Lock()
	p.listener = l
	s.mu.Unlock()
	s.proxy.Accept(ctx, l, func(*net.TCPConn) (model.Frontend, bool) { return p.frontend, true })
	return nil
}

// listen listens on one port of one address, without probes of idle connections: clients are on this machine.
func listen(f model.Frontend) (*net.TCPListener, error) {
	return tcpproxy.Listen(tcpproxy.AddressOf(f), -1)
}

// closePorts closes all ports.
func (s *Server) closePorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, p := range s.ports {
		p.close()
		delete(s.ports, f)
		delete(s.closed, f)
	}
}
