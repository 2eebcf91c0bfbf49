// Package localhost serves NodePorts of TCP on the loopback addresses, which rules cannot:
// it listens there, and connects to another frontend of the Service, so that the rules
// choose the endpoint.
package localhost

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// recorder records that the port of a Service cannot be opened.
type recorder interface {
	LocalhostFailed(model.ServiceName, error)
}

// maxFailed is how many failures are recorded at a time.
const maxFailed = 20

// Server listens for each NodePort of a Service with endpoints. Without endpoints nothing
// listens, and the kernel refuses connections, as the rules do elsewhere.
type Server struct {
	node   *feature.Node
	events recorder
	limits descriptors.LocalhostLimits
	proxy  *tcpproxy.Proxy
	others bool // that other protocols are not served is logged

	mu       sync.Mutex // guards what follows
	ports    map[model.Frontend]*port
	closed   map[model.Frontend]*port // the ports that are not open, but should be
	failures map[model.Family]uint64  // attempts to open a port that failed
	reported map[model.Family]failure // why a whole family could not listen
}

// port is a NodePort in one family. The lock of the server guards all but frontend.
type port struct {
	frontend model.Frontend
	name     model.PortName
	listener *net.TCPListener // nil: the port is not open
	failure  failure          // why, as reported
}

// close stops listening. Connections stay.
func (p *port) close() {
	if p.listener != nil {
		p.listener.Close()
	}
}

func newServer(n *feature.Node, events recorder, limits descriptors.LocalhostLimits, sockets tcpproxy.Sockets) *Server {
	s := &Server{
		node: n, events: events, limits: limits, ports: make(map[model.Frontend]*port), closed: make(map[model.Frontend]*port),
		failures: make(map[model.Family]uint64), reported: make(map[model.Family]failure),
	}
	s.proxy = tcpproxy.New(tcpproxy.Config{Router: s, Sockets: sockets, Connections: limits.Connections, OfFrontend: limits.OfPort, Refuse: true, Log: n.ObjectLog})
	return s
}

// Update follows the changes of a successful sync. It closes ports, and does not wait for others to be
// opened; [Server.Run] opens them. Calls must not overlap.
func (s *Server) Update(changes []model.RouteChange) {
	s.logOthers(changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		if c := &changes[i]; c.Frontend.OnLocalhost() {
			s.setPort(c)
		}
	}
	if len(s.closed) > 0 {
		s.proxy.Wake()
	}
}

func (s *Server) setPort(c *model.RouteChange) {
	p := s.ports[c.Frontend]
	switch serves := c.New != nil && c.New.Inside().Verdict == model.Forward; {
	case serves && p == nil:
		p = &port{frontend: c.Frontend, name: c.New.PortName()}
		s.ports[c.Frontend], s.closed[c.Frontend] = p, p
	case serves:
		p.name = c.New.PortName()
	case p != nil:
		s.forget(p)
	}
}

// forget closes a port for good.
func (s *Server) forget(p *port) {
	p.close()
	delete(s.ports, p.frontend)
	delete(s.closed, p.frontend)
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
		s.node.ObjectLog.Warn("on localhost, only NodePorts of TCP are served", "service", first.Service.Name, "protocol", first.Port.Protocol)
	}
}

// Run opens ports until ctx ends, then closes all of them and their connections.
func (s *Server) Run(ctx context.Context) { s.proxy.Run(ctx, s.openClosed, s.closePorts) }

// openClosed tries to open the ports that are not open, and logs what fails. It reports whether all are open.
func (s *Server) openClosed(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed, opened []*port
	blocked := make(map[model.Family]failure) // the other ports of a family are not tried
	for _, p := range slices.SortedFunc(maps.Values(s.closed), comparePorts) {
		family, before := model.FamilyOf(p.frontend.Address), p.failure
		if p.failure = blocked[family]; p.failure == (failure{}) {
			p.failure = s.openPort(ctx, p)
		}
		switch {
		case p.failure == (failure{}):
			delete(s.closed, p.frontend)
			delete(s.reported, family)
			if before != (failure{}) {
				opened = append(opened, p)
			}
		case p.failure != before:
			failed = append(failed, p)
		}
		if p.failure.wide {
			blocked[family] = p.failure
		}
	}
	s.logPass(failed, opened, blocked)
	return len(s.closed) == 0
}

// openPort opens a port. The caller holds the lock.
func (s *Server) openPort(ctx context.Context, p *port) failure {
	if len(s.ports)-len(s.closed) >= s.limits.Listeners {
		return tooMany
	}
	l, err := s.proxy.Listen(tcpproxy.AddressOf(p.frontend), -1) // no probes of idle connections: clients are on this machine
	if err != nil {
		s.failures[model.FamilyOf(p.frontend.Address)]++
		return causeOf(err)
	}
	p.listener = l
	s.proxy.Accept(ctx, l, func(*net.TCPConn) (model.Frontend, bool) { return p.frontend, true })
	return failure{}
}

func (s *Server) closePorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports {
		s.forget(p)
	}
}

type Counts struct {
	tcpproxy.Counts
	Listeners map[model.Family]int    // open ports
	Unserved  map[model.Family]int    // ports that could not be opened
	Failures  map[model.Family]uint64 // attempts to open a port that failed, since the start
}

func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Counts{
		Counts:    s.proxy.Counts(tcpproxy.Forwarded, tcpproxy.Limited, tcpproxy.NoEndpoint, tcpproxy.DialFailed, tcpproxy.AcceptFailed),
		Listeners: make(map[model.Family]int), Unserved: make(map[model.Family]int), Failures: maps.Clone(s.failures),
	}
	for f, p := range s.ports {
		if p.listener != nil {
			c.Listeners[model.FamilyOf(f.Address)]++
		} else {
			c.Unserved[model.FamilyOf(f.Address)]++
		}
	}
	return c
}

// Route implements [tcpproxy.Router]: the connection goes to another frontend, whose rules choose the endpoint.
func (s *Server) Route(at model.Frontend, _ *net.TCPConn) (out tcpproxy.Route, refused tcpproxy.Result) {
	to, ok := s.node.Serving().BehindLocalhost(at)
	if !ok {
		return out, tcpproxy.NoEndpoint
	}
	out.Servers = []model.Endpoint{{Host: &model.Host{Address: to.Addr()}, Port: to.Port()}}
	return out, tcpproxy.Forwarded
}

func (s *Server) LogExceeded(e tcpproxy.Exceeded) {
	limit := "the limit of one port"
	if e.Whole {
		limit = "the limit of all localhost NodePorts"
	}
	s.proxy.Warn("connections to a NodePort on localhost are refused", "address", tcpproxy.AddressOf(e.At), "service", s.portName(e.At),
		"because", limit, "connections", e.Connections)
}

func (s *Server) LogFailure(at model.Frontend, r *tcpproxy.Route, err error) {
	s.node.ObjectLog.Debug("a connection to a NodePort on localhost failed", "address", tcpproxy.AddressOf(at), "service", s.portName(at),
		"to", r.Servers[0].Address(), "error", err)
}

// portName returns the name of a port that is served; the zero value: it is not any more.
func (s *Server) portName(at model.Frontend) (name model.PortName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.ports[at]; p != nil {
		name = p.name
	}
	return name
}

type Kind struct{}

func (Kind) New(n *feature.Node) feature.Feature {
	if len(n.Config.Node.Localhost()) == 0 {
		return nil
	}
	return newServer(n, n.Events, descriptors.Localhost(), tcpproxy.Kernel{})
}

func (s *Server) FollowSync(f *feature.Sync) {
	if f.Err == nil {
		s.Update(f.Routes)
	}
}

// Problems implements [feature.Reporter]: a line for each cause and address of ports that cannot be opened.
func (s *Server) Problems(time.Time) []model.Notice {
	return feature.OfMachine(model.LocalhostPort, s.problems()...)
}

func (s *Server) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(s.Counts, s.node.Serving)}
}

func newCollector(counts func() Counts, serving func() feature.Serving) prometheus.Collector {
	const byFamily = "ip_family"
	listeners := scraped.Gauge("kubeproxy_nftables_localhost_nodeport_listeners", "NodePorts that are served on localhost.", byFamily)
	failures := scraped.Counter("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failed attempts to listen on a NodePort on localhost.", byFamily)
	unserved := scraped.Gauge("nftproxy_localhost_ports_unserved", "NodePorts that should be served on localhost, but cannot be.", byFamily)
	open := scraped.Gauge("nftproxy_localhost_connections", "Open connections to NodePorts on localhost.")
	total := scraped.Counter("nftproxy_localhost_connections_total",
		"Connections to NodePorts on localhost by result: forwarded, or refused because of a limit (limit), no endpoint (no_endpoint, dial_failed) or a lack of resources (accept_failed).",
		"result")
	return scraped.New(func(out scraped.Values) error {
		now := counts()
		for _, f := range serving().Families() {
			out.Add(listeners, float64(now.Listeners[f]), f.String())
			out.Add(unserved, float64(now.Unserved[f]), f.String())
			out.Add(failures, float64(now.Failures[f]), f.String())
		}
		out.Add(open, float64(now.Connections))
		for result, n := range now.Total {
			out.Add(total, float64(n), result.String())
		}
		return nil
	}, listeners, failures, unserved, open, total)
}
