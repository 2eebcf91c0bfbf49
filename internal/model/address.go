package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Family is an IP address family. A frontend forwards to endpoints of its own family
// only (15.5).
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both families in printing order.
var Families = [...]Family{IPv4, IPv6}

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return fmt.Sprintf("Family(%d)", uint8(f))
}

// FamilyOf returns the family of a. An IPv4-mapped IPv6 address counts as
// IPv4 (1.35); callers keep addresses unmapped.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

func firstIn(f Family, addresses []netip.Addr) (netip.Addr, bool) {
	for _, a := range addresses {
		if FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Protocol is a transport protocol by its IANA protocol number.
type Protocol uint8

const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132

	// No Service has a port of these.
	ICMP   Protocol = 1
	ICMPv6 Protocol = 58
)

func EchoProtocol(f Family) Protocol {
	if f == IPv6 {
		return ICMPv6
	}
	return ICMP
}

// IsEcho reports whether echo requests are of this protocol, which then has no ports.
func (p Protocol) IsEcho() bool { return p == ICMP || p == ICMPv6 }

// Protocols lists the protocols of Services (4.42) in printing order.
var Protocols = [...]Protocol{TCP, UDP, SCTP}

// String returns the name that nftables and /etc/protocols use.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	case ICMP:
		return "icmp"
	case ICMPv6:
		return "ipv6-icmp"
	}
	return fmt.Sprintf("%d", uint8(p))
}

// ParseProtocol parses a protocol name in upper or lower case.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range Protocols {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown protocol %q: use TCP, UDP or SCTP", s)
}

// parseName returns the value with a name; the first one has the first name. what is for the error.
func parseName[T ~uint8](what, name string, names []string, first T) (v T, err error) {
	i, last := slices.Index(names, name), len(names)-1
	if i < 0 {
		return v, fmt.Errorf("unknown %s %q: use %s or %s", what, name, strings.Join(names[:last], ", "), names[last])
	}
	return first + T(i), nil
}

// nameOf is the inverse: byDefault is the name of values before the first one.
func nameOf[T ~uint8](v, first T, names []string, byDefault string) string {
	if v < first {
		return byDefault
	}
	return names[v-first]
}
