package relay

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/descriptors"
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
