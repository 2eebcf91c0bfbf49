package tcpproxy

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial connects to a server. hops is how many hops (TTL, hop limit) the packets of the connection have; 0: as many as
// the machine gives.
func Dial(ctx context.Context, to netip.AddrPort, hops uint8) (*net.TCPConn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	if hops > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = setHops(int(fd), to.Addr().Is4(), hops) })
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
