package localhost

import (
	"net"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// Route implements [tcpproxy.Router]: the connection goes to another frontend, whose rules choose the endpoint.
func (s *Server) Route(at model.Frontend, _ *net.TCPConn) (out tcpproxy.Route, refused tcpproxy.Result) {
	to, ok := s.Target(at)
	if !ok {
		return out, tcpproxy.NoEndpoint
	}
	out.Servers = []model.Endpoint{{Host: &model.Host{Address: to.Addr()}, Port: to.Port()}}
	return out, tcpproxy.Forwarded
}

// LogExceeded implements [tcpproxy.Router].
func (s *Server) LogExceeded(e tcpproxy.Exceeded) {
	limit := "the limit of one port"
	if e.Whole {
		limit = "the limit of all localhost NodePorts"
	}
	s.proxy.Warn("connections to a NodePort on localhost are refused", "address", tcpproxy.AddressOf(e.At), "service", s.portName(e.At),
		"because", limit, "connections", e.Connections)
}

// LogFailure implements [tcpproxy.Router].
func (s *Server) LogFailure(at model.Frontend, r *tcpproxy.Route, err error) {
	s.Log.Debug("a connection to a NodePort on localhost failed", "address", tcpproxy.AddressOf(at), "service", s.portName(at),
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
