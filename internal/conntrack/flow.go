package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"golang.org/x/sys/unix"
)

// Flow is a connection tracking entry.
type Flow struct {
	Protocol model.Protocol
	Client   netip.Addr     // original source
	Dialled  netip.AddrPort // original destination
	Answers  netip.AddrPort // reply source
	Returns  netip.AddrPort // reply destination: the client, unless it is masqueraded; of echo requests the identifier is its port
	ID       uint32
	// Opening reports that a TCP connection waits for its first answer.
	Opening bool
	// Closing reports that both sides have ended a TCP or SCTP connection, so that it
	// carries no more data.
	Closing bool
	// ClosedBy is who has ended a TCP connection first, without a reset.
	ClosedBy Side
	// Answered reports that there was an answer.
	Answered bool
}

// Side is an end of a connection.
type Side uint8

const (
	Neither Side = iota
	ClientSide
	EndpointSide
)

// Attributes of <linux/netfilter/nfnetlink_conntrack.h>.
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaProtoInfo  = 4
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	ctaStatusMask = 26

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaTupleZone  = 3

	ctaIPv4Source      = 1
	ctaIPv4Destination = 2
	ctaIPv6Source      = 3
	ctaIPv6Destination = 4

	ctaProtoNumber          = 1
	ctaProtoSourcePort      = 2
	ctaProtoDestinationPort = 3
	ctaProtoICMPID          = 4
	ctaProtoICMPType        = 5
	ctaProtoICMPCode        = 6
	ctaProtoICMPv6ID        = 7
	ctaProtoICMPv6Type      = 8
	ctaProtoICMPv6Code      = 9

	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2

	ctaProtoInfoTCP  = 1
	ctaProtoInfoSCTP = 3

	ctaProtoInfoState = 1 // of both

	ctaProtoInfoTCPFlagsOrig  = 4 // struct nf_ct_tcp_flags
	ctaProtoInfoTCPFlagsReply = 5
)

// States of <linux/netfilter/nf_conntrack_tcp.h> and nf_conntrack_sctp.h.
const (
	tcpSynSent  = 1
	tcpLastAck  = 6 // followed by those without data, except the next one
	tcpSynSent2 = 9 // both sides open

	tcpClosedFirst = 1 << 2 // IP_CT_TCP_FLAG_CLOSE_INIT of one side

	sctpClosed          = 1
	sctpShutdownAckSent = 7
)

// Types of ICMP and ICMPv6.
const (
	icmpEchoReply   = 0
	icmpv6EchoReply = 129
)

// Flags with which a dump compares parts of a tuple (CTA_FILTER_F_CTA_* of the kernel's
// nf_internals.h).
const (
	filterSource   = 1 << 0
	filterProtocol = 1 << 3
)

func messageHeader(f model.Family) []byte {
	family := byte(unix.AF_INET)
	if f == model.IPv6 {
		family = unix.AF_INET6
	}
	return []byte{family, unix.NFNETLINK_V0, 0, 0}
}

// encodeAttribute encodes an attribute with a payload of one or more parts.
func encodeAttribute(kind uint16, parts ...[]byte) []byte {
	data := slices.Concat(parts...)
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, -len(b)&(unix.NLA_ALIGNTO-1))...)
}

func encodeNested(kind uint16, attributes ...[]byte) []byte {
	return encodeAttribute(kind|unix.NLA_F_NESTED, attributes...)
}

func encodeUint16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// encodeFilter encodes the request for the entries of a protocol, and if from is an IPv4 address,
// only those with answers from there. Kernels before 5.8 ignore it and send all entries. Of
// IPv6 they send the others: up to 6.18, ctnetlink_filter_match_tuple takes the result of
// ipv6_addr_cmp, which is 0 for equal addresses, for its opposite (TestKernelFiltersAnswers).
func encodeFilter(p model.Protocol, from netip.Addr) []byte {
	flags := encodeAttribute(ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterProtocol))
	out := encodeNested(ctaTupleOrig, encodeNested(ctaTupleProto, encodeAttribute(ctaProtoNumber, []byte{byte(p)})))
	if from.Is4() {
		out = append(out, encodeNested(ctaTupleReply, encodeNested(ctaTupleIP, encodeAttribute(ctaIPv4Source, from.AsSlice())))...)
		flags = append(flags, encodeAttribute(ctaFilterReplyFlags, binary.NativeEndian.AppendUint32(nil, filterSource))...)
	}
	return append(out, encodeNested(ctaFilter, flags)...)
}

// encodeUnanswered encodes the request for the entries that had no answer and are not translated.
// Kernels before 5.16 ignore it and send all entries.
func encodeUnanswered() []byte {
	return append(encodeAttribute(ctaStatus, encodeUint32(0)), encodeAttribute(ctaStatusMask, encodeUint32(seenReply|translatesDst))...)
}

// encode encodes the identity of a flow for its deletion. Without the tuple, the
// kernel would delete all entries.
func (f *Flow) encode() []byte {
	return append(encodeTuple(ctaTupleReply, f.Answers.Addr(), f.Returns.Addr(), f.Protocol, f.encodeReplyPorts()),
		encodeAttribute(ctaID, binary.BigEndian.AppendUint32(nil, f.ID))...)
}

// encode encodes the tuple of a connection's first packet.
func (c *Connection) encode() []byte {
	return encodeTuple(ctaTupleOrig, c.Client.Addr(), c.Dialled.Addr(), c.Protocol, encodePorts(c.Client.Port(), c.Dialled.Port()))
}

// encodeTuple encodes one direction of an entry. ends are its ports, or what ICMP has instead.
func encodeTuple(kind uint16, from, to netip.Addr, p model.Protocol, ends []byte) []byte {
	source, destination := uint16(ctaIPv4Source), uint16(ctaIPv4Destination)
	if from.Is6() {
		source, destination = ctaIPv6Source, ctaIPv6Destination
	}
	return encodeNested(kind,
		encodeNested(ctaTupleIP, encodeAttribute(source, from.AsSlice()), encodeAttribute(destination, to.AsSlice())),
		encodeNested(ctaTupleProto, encodeAttribute(ctaProtoNumber, []byte{byte(p)}), ends))
}

func encodePorts(from, to uint16) []byte {
	return append(encodeAttribute(ctaProtoSourcePort, encodeUint16(from)), encodeAttribute(ctaProtoDestinationPort, encodeUint16(to))...)
}

// encodeReplyPorts encodes the ports of answers, or the type, code and identifier of echo replies.
func (f *Flow) encodeReplyPorts() []byte {
	switch f.Protocol {
	case model.ICMP:
		return slices.Concat(encodeAttribute(ctaProtoICMPID, encodeUint16(f.Returns.Port())),
			encodeAttribute(ctaProtoICMPType, []byte{icmpEchoReply}), encodeAttribute(ctaProtoICMPCode, []byte{0}))
	case model.ICMPv6:
		return slices.Concat(encodeAttribute(ctaProtoICMPv6ID, encodeUint16(f.Returns.Port())),
			encodeAttribute(ctaProtoICMPv6Type, []byte{icmpv6EchoReply}), encodeAttribute(ctaProtoICMPv6Code, []byte{0}))
	}
	return encodePorts(f.Answers.Port(), f.Returns.Port())
}

// decode decodes a message of a dump. It returns false unless that is a flow with
// ports, or one of echo requests, in the default zone.
func decode(message []byte) (Flow, bool) {
	var err error
	f, ok := FlowOf(netlinkio.ReadMessage(message, &err))
	return f, ok && err == nil
}

// FlowOf decodes the attributes of an entry, which messages of nflog have as well. It returns
// false unless that is a flow with ports, or one of echo requests, in the default zone, as far
// as the attributes have no error.
func FlowOf(a netlinkio.Attributes) (f Flow, ok bool) {
	var original, reply tuple
	for a.Next() {
		switch a.Type {
		case ctaTupleOrig:
			original = decodeTuple(a.Nested())
		case ctaTupleReply:
			reply = decodeTuple(a.Nested())
		case ctaProtoInfo:
			f.decodeState(a.Nested())
		case ctaStatus:
			f.Answered = decodeNumber(a.Data)&seenReply != 0
		case ctaID:
			f.ID = decodeNumber(a.Data)
		case ctaZone:
			return Flow{}, false
		}
	}
	if !original.isComplete() || !reply.isComplete() || original.protocol != reply.protocol || original.to.BitLen() != reply.from.BitLen() {
		return Flow{}, false
	}
	f.Protocol, f.Client, f.Dialled = original.protocol, original.from, original.destinationAddress()
	f.Answers, f.Returns = reply.sourceAddress(), reply.destinationAddress()
	if original.echo { // which has no ports
		f.Dialled = netip.AddrPortFrom(original.to, 0)
	}
	return f, true
}

// decodeState reads whether a connection is before or after its data.
func (f *Flow) decodeState(protocols netlinkio.Attributes) {
	for protocols.Next() {
		for a := protocols.Nested(); a.Next(); {
			state := decodeNumber(a.Data)
			switch {
			case protocols.Type == ctaProtoInfoTCP && (a.Type == ctaProtoInfoTCPFlagsOrig || a.Type == ctaProtoInfoTCPFlagsReply):
				f.decodeFlags(a)
			case a.Type != ctaProtoInfoState:
			case protocols.Type == ctaProtoInfoTCP:
				f.Opening = state == tcpSynSent
				f.Closing = state >= tcpLastAck && state < tcpSynSent2
			case protocols.Type == ctaProtoInfoSCTP:
				f.Closing = state == sctpClosed || state == sctpShutdownAckSent
			}
		}
	}
}

// decodeFlags reads whether a side of a TCP connection was the first one to end it.
func (f *Flow) decodeFlags(a netlinkio.Attributes) {
	switch {
	case len(a.Data) == 0 || a.Data[0]&tcpClosedFirst == 0:
	case a.Type == ctaProtoInfoTCPFlagsOrig:
		f.ClosedBy = ClientSide
	default:
		f.ClosedBy = EndpointSide
	}
}

type tuple struct {
	from, to         netip.Addr
	protocol         model.Protocol
	fromPort, toPort uint16 // of echo replies, toPort is the identifier
	echo             bool   // an echo reply, or the request for one
	zone             bool   // not the default one
}

func (t *tuple) isComplete() bool {
	hasEnds := t.fromPort != 0 && t.toPort != 0 && !t.echo
	if t.protocol.IsEcho() {
		hasEnds = t.fromPort == 0 && t.echo
	}
	return t.from.IsValid() && t.from.BitLen() == t.to.BitLen() && hasEnds && !t.zone
}

func (t *tuple) sourceAddress() netip.AddrPort      { return netip.AddrPortFrom(t.from, t.fromPort) }
func (t *tuple) destinationAddress() netip.AddrPort { return netip.AddrPortFrom(t.to, t.toPort) }

// echoTypes are the types of echo requests and replies.
var echoTypes = []byte{8, icmpEchoReply, 128, icmpv6EchoReply}

func decodeTuple(a netlinkio.Attributes) (t tuple) {
	for a.Next() {
		part := a.Nested()
		switch a.Type {
		case ctaTupleIP:
			for part.Next() {
				switch part.Type {
				case ctaIPv4Source, ctaIPv6Source:
					t.from, _ = netip.AddrFromSlice(part.Data)
				case ctaIPv4Destination, ctaIPv6Destination:
					t.to, _ = netip.AddrFromSlice(part.Data)
				}
			}
		case ctaTupleProto:
			for part.Next() {
				switch part.Type {
				case ctaProtoNumber:
					t.protocol = model.Protocol(decodeNumber(part.Data))
				case ctaProtoSourcePort:
					t.fromPort = uint16(decodeNumber(part.Data))
				case ctaProtoDestinationPort, ctaProtoICMPID, ctaProtoICMPv6ID:
					t.toPort = uint16(decodeNumber(part.Data))
				case ctaProtoICMPType, ctaProtoICMPv6Type:
					t.echo = slices.Contains(echoTypes, byte(decodeNumber(part.Data)))
				}
			}
		case ctaTupleZone:
			t.zone = true
		}
	}
	return t
}

// decodeNumber reads an unsigned number in network byte order.
func decodeNumber(b []byte) (n uint32) {
	for _, digit := range b {
		n = n<<8 | uint32(digit)
	}
	return n
}
