package relay

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

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
