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
	"time"

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
	Log    *slog.Logger
}

const maxFailed = 20

// Server listens for each NodePort of a Service with endpoints. Without endpoints nothing
// listens, and the kernel refuses connections, as the rules do elsewhere. Established
// connections stay until one end closes them, even if the Service goes.
type Server struct {
	Config
	limits limits
	counts counts
	// listen, dial and retry are replaced in tests.
	listen func(model.Frontend) (*net.TCPListener, error)
	dial   func(context.Context, netip.AddrPort) (*net.TCPConn, error)
	retry  time.Duration // first pause
	wake   chan struct{}

	mu      sync.Mutex
	changed map[model.Frontend]model.PortName // since the last pass; the zero name: not served
	ports   map[model.Frontend]*port
	closed  map[model.Frontend]*port // the ports that are not open, but should be

	reported map[model.Family]string // why a whole family could not listen
	warned   atomic.Int64            // when the last warning about a limit was written
	others   bool                    // that other protocols are not served is logged
	active   sync.WaitGroup
	ctx      context.Context
}

// New returns a server that listens nowhere yet.
func New(c Config) *Server {
	return &Server{
		Config: c, limits: newLimits(), listen: listen, dial: dial, retry: tcpproxy.FirstRetry, wake: make(chan struct{}, 1),
		changed: make(map[model.Frontend]model.PortName), ports: make(map[model.Frontend]*port),
		closed: make(map[model.Frontend]*port), reported: make(map[model.Family]string),
	}
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
		s.notify()
	}
}

func (s *Server) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
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
	s.ctx = ctx
	defer s.close()
	tcpproxy.Open(ctx, s.wake, s.retry, func() bool {
		s.take()
		s.open()
		return len(s.closed) == 0
	})
}

// take applies the changes, and closes ports.
func (s *Server) take() {
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
			p = &port{server: s, frontend: f, name: name}
			s.ports[f], s.closed[f] = p, p
		default:
			p.name = name
		}
	}
	clear(s.changed)
}

// open tries to open the ports that are not open, and reports what fails.
func (s *Server) open() {
	if len(s.closed) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(s.closed), model.Frontend.Compare)
	r := newReport()
	for _, f := range all {
		p := s.closed[f]
		err := r.blocked[model.FamilyOf(f.Address)]
		if err == nil {
			err = s.openPort(p)
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

func (s *Server) openPort(p *port) error {
	if len(s.ports)-len(s.closed) >= s.limits.listeners {
		return errTooMany
	}
	l, err := s.listen(p.frontend)
	if err != nil {
		s.counts.failures[familyIndex(p.frontend)].Add(1)
		return cause(err)
	}
	s.mu.Lock()
	p.listener = l
	s.mu.Unlock()
	s.active.Go(func() { p.accept(l) })
	return nil
}

// listen listens on one port of one address. Multipath TCP, Go's default, takes memory
// that clients on this machine have no use for; so do probes of idle connections.
func listen(f model.Frontend) (*net.TCPListener, error) {
	c := net.ListenConfig{KeepAlive: -1}
	c.SetMultipathTCP(false)
	network := "tcp4"
	if f.Address.Is6() {
		network = "tcp6"
	}
	l, err := c.Listen(context.Background(), network, netip.AddrPortFrom(f.Address, f.Port).String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// close closes all ports, and waits for the end of all connections, whose context has
// ended.
func (s *Server) close() {
	s.mu.Lock()
	for f, p := range s.ports {
		p.close()
		delete(s.ports, f)
		delete(s.closed, f)
	}
	s.mu.Unlock()
	s.active.Wait()
}
