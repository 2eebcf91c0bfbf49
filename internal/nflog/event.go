package nflog

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Event is a packet that a rule has logged.
type Event struct {
	// Prefix is the text that the rule gives. It is valid until the next event.
	Prefix   []byte
	Protocol model.Protocol
	// Source and Destination are of the packet; their ports are 0 if it has none, or if they
	// are not in its first bytes.
	Source, Destination netip.AddrPort
	// Reset reports a TCP segment that resets its connection.
	Reset bool
	// Flow is the connection of the packet, if Tracked: if the kernel adds it, and if the
	// packet is tracked in the default zone.
	Flow    conntrack.Flow
	Tracked bool

	// Errors of the message, and of its connection: variables would be allocated for each.
	malformed, malformedFlow error
}

func (e *Event) Client() netip.AddrPort {
	switch {
	case !e.Tracked || e.Flow.Client == e.Source.Addr():
		return e.Source
	case e.Flow.Client == e.Destination.Addr(): // of an answer
		return e.Destination
	}
	return netip.AddrPortFrom(e.Flow.Client, 0) // the packet is masqueraded
}

// Dialled returns where the client has sent its packet.
func (e *Event) Dialled() netip.AddrPort {
	if e.Tracked {
		return e.Flow.Dialled
	}
	return e.Destination
}

// Endpoint returns where the kernel sends the connection; false: where it was dialled, or
// not known.
func (e *Event) Endpoint() (netip.AddrPort, bool) {
	return e.Flow.Answers, e.Tracked && e.Flow.Answers != e.Flow.Dialled
}

// Attributes of <linux/netfilter/nfnetlink_log.h>.
const (
	nfulaPayload  = 9
	nfulaPrefix   = 10
	nfulaSequence = 12
	nfulaCT       = 18
)

// decode decodes the attributes of a message. sequence is the number of the packet in its
// group. It returns false for packets that are not IP, and for malformed messages.
func (e *Event) decode(family byte, attributes []byte) (sequence uint32, ok bool) {
	*e = Event{}
	a := netlinkio.Read(attributes, &e.malformed)
	for a.Next() {
		switch a.Type {
		case nfulaPrefix:
			e.Prefix = a.Text()
		case nfulaSequence:
			sequence = a.Uint32()
		case nfulaPayload:
			ok = e.decodePacket(family, a.Data)
		case nfulaCT:
			e.Flow, e.Tracked = conntrack.FlowOf(netlinkio.Read(a.Data, &e.malformedFlow))
			e.Tracked = e.Tracked && e.malformedFlow == nil
		}
	}
	return sequence, ok && e.malformed == nil
}

const (
	ipv4Length = 20 // without options
	ipv6Length = 40
)

// decodePacket reads the headers of a packet.
func (e *Event) decodePacket(family byte, b []byte) bool {
	var from, to netip.Addr
	var rest []byte
	switch {
	case family == unix.AF_INET && len(b) >= ipv4Length && b[0]>>4 == 4:
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		e.Protocol = model.Protocol(b[9])
		if first := binary.BigEndian.Uint16(b[6:])&0x1fff == 0; first { // fragment
			rest = b[min(len(b), 4*int(b[0]&0xf)):]
		}
	case family == unix.AF_INET6 && len(b) >= ipv6Length && b[0]>>4 == 6:
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		e.Protocol, rest = pastExtensions(b[6], b[ipv6Length:])
	default:
		return false
	}
	fromPort, toPort := packetPorts(e.Protocol, rest)
	e.Reset = e.Protocol == model.TCP && len(rest) > tcpFlags && rest[tcpFlags]&tcpReset != 0
	e.Source, e.Destination = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	return true
}

const (
	tcpFlags = 13 // offset in the header
	tcpReset = 1 << 2
)

// packetPorts returns the ports of a packet, from the bytes behind its IP header.
func packetPorts(p model.Protocol, b []byte) (from, to uint16) {
	if len(b) < 4 || !slices.Contains([]model.Protocol{model.TCP, model.UDP, model.SCTP, udpLite, dccp}, p) {
		return 0, 0
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
}

// Protocols with ports that no Service has.
const (
	udpLite model.Protocol = unix.IPPROTO_UDPLITE
	dccp    model.Protocol = unix.IPPROTO_DCCP
)

// Extension headers of IPv6.
const (
	hopByHop    = unix.IPPROTO_HOPOPTS
	routing     = unix.IPPROTO_ROUTING
	fragment    = unix.IPPROTO_FRAGMENT
	destination = unix.IPPROTO_DSTOPTS
)

// pastExtensions returns the protocol behind the extension headers of a packet, and what
// follows; nothing behind the first fragment.
func pastExtensions(next byte, b []byte) (model.Protocol, []byte) {
	for len(b) >= 8 {
		length := 8 * (int(b[1]) + 1)
		switch next {
		case hopByHop, routing, destination:
		case fragment:
			if length = 8; binary.BigEndian.Uint16(b[2:])&^7 != 0 {
				return model.Protocol(b[0]), nil
			}
		default:
			return model.Protocol(next), b
		}
		next, b = b[0], b[min(len(b), length):]
	}
	return model.Protocol(next), b
}
