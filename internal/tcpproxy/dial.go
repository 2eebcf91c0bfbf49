package tcpproxy

import (
	"cmp"
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
			level, option := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
			if to.Addr().Is4() {
				level, option = unix.IPPROTO_IP, unix.IP_TTL
			}
			failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, int(hops)) })
			return cmp.Or(failed, err)
		}
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
