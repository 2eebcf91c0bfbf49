package relay

import (
	"net"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// frontendOf returns the frontend that a client has dialled. A connection that the rules have not redirected
// has none: the lists and limits of clients are in the rules.
func frontendOf(client *net.TCPConn) (at model.Frontend, ok bool) {
	read := original6
	if tcpproxy.EndOf(client.LocalAddr()).Addr().Is4() {
		read = original4
	}
	dialled, err := descriptors.Use(client, read)
	return model.Frontend{Address: dialled.Addr(), Protocol: model.TCP, Port: dialled.Port()}, err == nil
}

// Route implements [tcpproxy.Router].
func (s *Server) Route(at model.Frontend, client *net.TCPConn) (out tcpproxy.Route, refused tcpproxy.Result) {
	r, ok := s.Relay(at)
	left := hops(client)
	switch {
	case !ok:
		return out, tcpproxy.NotRelayed
	case 0 < left && left < leastHops:
		s.proxy.Warn("connections to a relayed Balance are refused", "because", "they have passed too many relays: a server may send them back to this machine", "address", tcpproxy.AddressOf(at), "service", r.Service)
		return out, tcpproxy.Looped
	case len(r.Servers) == 0:
		return out, tcpproxy.NoServer
	}
	out = tcpproxy.Route{Relayed: r, Hops: hopsToServer(left)}
	if r.Use == model.ProxyV2Relay {
		out.Header = header(tcpproxy.EndOf(client.RemoteAddr()), tcpproxy.AddressOf(at))
	}
	return out, tcpproxy.Forwarded
}

// LogExceeded implements [tcpproxy.Router].
func (s *Server) LogExceeded(e tcpproxy.Exceeded) {
	s.proxy.Warn("the limit of relayed connections is reached: idle ones of the client with the most end for new ones", "connections", e.Connections,
		"address", tcpproxy.AddressOf(e.At), "client", e.Victim)
}

// LogFailure implements [tcpproxy.Router].
func (s *Server) LogFailure(at model.Frontend, r *tcpproxy.Route, err error) {
	s.Log.Debug("a connection could not be relayed", "address", tcpproxy.AddressOf(at), "service", r.Service, "error", err)
}
