package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unique"
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

// EchoProtocol returns the protocol of echo requests in a family.
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

// Place is the node and the zone of a host, and the nodes and zones that its topology hints
// name. Hosts with the same place share it. It is comparable; the zero value is an unknown
// node and zone without hints.
type Place struct{ shared unique.Handle[place] }

type place struct {
	node, zone         string
	forZones, forNodes names
}

// OnNode returns the place of a host of an unknown zone without topology hints.
func OnNode(name string) Place { return NewPlace(name, "", nil, nil) }

// NewPlace returns the place of a host with topology hints.
func NewPlace(node, zone string, forZones, forNodes []string) Place {
	p := place{node, zone, joinNames(forZones), joinNames(forNodes)}
	if p == (place{}) {
		return Place{}
	}
	return Place{unique.Make(p)}
}

func (p Place) get() place {
	if p == (Place{}) {
		return place{}
	}
	return p.shared.Value()
}

// Node returns the name of the node; empty: unknown (2.15).
func (p Place) Node() string { return p.get().node }

// Zone returns the name of the zone; empty: unknown (2.27).
func (p Place) Zone() string { return p.get().zone }

// ForZones returns the zone hints (2.16).
func (p Place) ForZones() []string { return slices.Collect(p.get().forZones.eachName) }

// ForNodes returns the node hints (2.16).
func (p Place) ForNodes() []string { return slices.Collect(p.get().forNodes.eachName) }

// String returns for example "node-1 in zone a for zones [a b] nodes []".
func (p Place) String() string {
	text := p.Node()
	if zone := p.Zone(); zone != "" {
		text += " in zone " + zone
	}
	if zones, nodes := p.ForZones(), p.ForNodes(); len(zones)+len(nodes) > 0 {
		text += " for zones [" + strings.Join(zones, " ") + "] nodes [" + strings.Join(nodes, " ") + "]"
	}
	return text
}

func (p Place) compare(o Place) int {
	if p == o {
		return 0
	}
	a, b := p.get(), o.get()
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.forZones, b.forZones), cmp.Compare(a.forNodes, b.forNodes), cmp.Compare(a.zone, b.zone))
}

// names is a comparable list of names, each with its length before it: names in a file
// may have any character.
type names string

func joinNames(all []string) names {
	var b []byte
	for _, name := range all {
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	}
	return names(b)
}

func (n names) eachName(yield func(string) bool) {
	for rest := string(n); rest != ""; {
		length, bytes := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		rest = rest[bytes:]
		if !yield(rest[:length]) {
			return
		}
		rest = rest[length:]
	}
}

func (n names) hasName(name string) bool {
	for one := range n.eachName {
		if one == name {
			return true
		}
	}
	return false
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
