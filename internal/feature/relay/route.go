package relay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

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

func (s *Server) Route(at model.Frontend, client *net.TCPConn) (out tcpproxy.Route, refused tcpproxy.Result) {
	r, ok := s.node.Serving().Relay(at)
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

func (s *Server) LogExceeded(e tcpproxy.Exceeded) {
	s.proxy.Warn("the limit of relayed connections is reached: idle ones of the client with the most end for new ones", "connections", e.Connections,
		"address", tcpproxy.AddressOf(e.At), "client", e.Victim)
}

func (s *Server) LogFailure(at model.Frontend, r *tcpproxy.Route, err error) {
	s.node.ObjectLog.Debug("a connection could not be relayed", "address", tcpproxy.AddressOf(at), "service", r.Service, "error", err)
}

// originalDestination is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv4.h and
// linux/netfilter_ipv6/ip6_tables.h.
const originalDestination = 80

// original4 reads the address that the client dialled, before the rules redirected it: a sockaddr_in, into a type of at least its size.
func original4(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, originalDestination)
	if err != nil {
		return netip.AddrPort{}, err
	}
	a := v.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), binary.BigEndian.Uint16(a[2:4])), nil
}

// original6 reads a sockaddr_in6, with which the other type begins.
func original6(fd int) (netip.AddrPort, error) {
	v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, originalDestination)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v.Addr.Port))
	return netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), port), nil
}

// What a header of the PROXY protocol consists of (proxy-protocol.txt of haproxy.org, 2.2).
const (
	signature   = "\r\n\r\n\x00\r\nQUIT\n"
	versionTwo  = 0x20
	commandBoth = 0x01 // PROXY: on behalf of another node
	overIPv4    = 0x11 // TCP
	overIPv6    = 0x21
)

// header returns the header for the connection of a client to the address that it dialled, which
// have one family.
func header(client, dialled netip.AddrPort) []byte {
	from, to, family := client.Addr().AsSlice(), dialled.Addr().AsSlice(), byte(overIPv4)
	if dialled.Addr().Is6() {
		family = overIPv6
	}
	out := append([]byte(signature), versionTwo|commandBoth, family)
	out = binary.BigEndian.AppendUint16(out, uint16(len(from)+len(to)+4))
	out = append(append(out, from...), to...)
	out = binary.BigEndian.AppendUint16(out, client.Port())
	return binary.BigEndian.AppendUint16(out, dialled.Port())
}

// Machines that relay to each other would send a connection round until none of them may have
// another one. So a connection has hops like a packet (its TTL or hop limit): a relay gives the
// one to its server one less than the client's request had left.

// leastHops are those that a client needs. Routers between relays take hops, too, and drop the request
// of a dial that has too few, which ends it later and without a reason.
const leastHops = 8

// usualHops are the most that a relay gives: those of a kernel by default. A machine may give more
// (net.ipv4.ip_default_ttl), which would start anew each time.
const usualHops = 64

// saveRequests has the kernel keep the SYN of each connection until hops reads it. If it
// cannot, limits alone end a loop.
func saveRequests(l *net.TCPListener) {
	_, _ = descriptors.Use(l, func(fd int) (ok bool, err error) {
		return true, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SAVE_SYN, 1)
	})
}

// Places of the hops in the headers of IPv4 and IPv6 (RFC 791, 3.1, and RFC 8200, 3).
const (
	placeOfTTL      = 8
	placeOfHopLimit = 7
)

// hops returns how many hops the request of a client had left; 0: the kernel has not kept it,
// as in a flood of requests.
func hops(client *net.TCPConn) (left uint8) {
	// The type is larger than headers and options of a SYN, up to 120 bytes.
	syn, err := descriptors.Use(client, func(fd int) (*unix.TCPInfo, error) {
		return unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_SAVED_SYN)
	})
	if err != nil {
		return 0 // if the client is gone, that is noticed later
	}
	switch header := (*[unsafe.Sizeof(*syn)]byte)(unsafe.Pointer(syn)); header[0] >> 4 {
	case 4:
		return header[placeOfTTL]
	case 6:
		return header[placeOfHopLimit]
	}
	return 0
}

// hopsToServer returns how many hops a connection to a server gets on behalf of a client whose request had
// some left; 0: as many as the machine gives.
func hopsToServer(left uint8) uint8 {
	if left <= 1 {
		return 0
	}
	return min(left-1, usualHops)
}
