package relay

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
	raw, err := l.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // see above
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_SAVE_SYN, 1)
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
	raw, err := client.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // the client is gone, which is noticed later
		// The type is larger than headers and options of a SYN, up to 120 bytes.
		syn, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_SAVED_SYN)
		if err != nil {
			return
		}
		switch header := (*[unsafe.Sizeof(*syn)]byte)(unsafe.Pointer(syn)); header[0] >> 4 {
		case 4:
			left = header[placeOfTTL]
		case 6:
			left = header[placeOfHopLimit]
		}
	})
	return left
}

// dial connects to a server, on behalf of a client whose request had some hops left.
func dial(ctx context.Context, to netip.AddrPort, left uint8) (*net.TCPConn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	if left > 1 {
		n := min(left-1, usualHops)
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = setHops(int(fd), to.Addr().Is4(), n) })
			if failed != nil {
				return failed
			}
			return err
		}
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func setHops(fd int, v4 bool, n uint8) error {
	if v4 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, int(n))
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, int(n))
}
