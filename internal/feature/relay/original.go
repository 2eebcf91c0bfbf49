package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// originalDestination is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv4.h and
// linux/netfilter_ipv6/ip6_tables.h.
const originalDestination = 80

// original returns the address that the client dialled, before the rules redirected it.
func original(c *net.TCPConn) (out netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return out, fmt.Errorf("read the original destination: %w", err)
	}
	local := tcpproxy.EndOf(c.LocalAddr()).Addr()
	failed := raw.Control(func(fd uintptr) {
		if local.Is4() {
			out, err = original4(int(fd))
		} else {
			out, err = original6(int(fd))
		}
	})
	if err := errors.Join(failed, err); err != nil {
		return out, fmt.Errorf("read the original destination: %w", err)
	}
	return out, nil
}

// original4 reads a sockaddr_in, into a type of at least its size.
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

// cause returns the error of the kernel, whose text is short; nil: it is another one.
func cause(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	return errno
}
