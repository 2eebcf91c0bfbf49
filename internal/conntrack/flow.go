package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"

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

// Attributes of <linux/netfilter/nfnetlink_conntrack.h> that package nl lacks.
const (
	ctaNATSource      = 6
	ctaNATDestination = 13
	ctaFilter         = 25
	ctaStatusMask     = 26

	ctaTupleZone = 3

	ctaProtoICMPID     = 4 // followed by the type and the code, as for ICMPv6
	ctaProtoICMPType   = 5
	ctaProtoICMPv6ID   = 7
	ctaProtoICMPv6Type = 8

	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
)

// Status of an entry, of <linux/netfilter/nf_conntrack_common.h>.
const (
	seenReply     = 1 << 1
	assured       = 1 << 2
	confirmed     = 1 << 3
	translatesSrc = 1 << 4
	translatesDst = 1 << 5
)

// States of <linux/netfilter/nf_conntrack_sctp.h>, and IP_CT_TCP_FLAG_CLOSE_INIT of one side.
const (
	tcpClosedFirst      = 1 << 2
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

func encodeUint32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// encodeFilter encodes the request for the entries of a protocol, and if from is an IPv4 address,
// only those with answers from there. Kernels before 5.8 ignore it and send all entries. Of
// IPv6 they send the others: up to 6.18, ctnetlink_filter_match_tuple takes the result of
// ipv6_addr_cmp, which is 0 for equal addresses, for its opposite (TestKernelFiltersAnswers).
func encodeFilter(p model.Protocol, from netip.Addr) []byte {
	flags := encodeAttribute(ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterProtocol))
	out := encodeNested(nl.CTA_TUPLE_ORIG, encodeNested(nl.CTA_TUPLE_PROTO, encodeAttribute(nl.CTA_PROTO_NUM, []byte{byte(p)})))
	if from.Is4() {
		out = append(out, encodeNested(nl.CTA_TUPLE_REPLY, encodeNested(nl.CTA_TUPLE_IP, encodeAttribute(nl.CTA_IP_V4_SRC, from.AsSlice())))...)
		flags = append(flags, encodeAttribute(ctaFilterReplyFlags, binary.NativeEndian.AppendUint32(nil, filterSource))...)
	}
	return append(out, encodeNested(ctaFilter, flags)...)
}

// encodeStatus encodes the request for the entries with some bits of the status, of those in a mask.
// Kernels before 5.16 ignore it and send all entries.
func encodeStatus(status, mask uint32) []byte {
	return append(encodeAttribute(nl.CTA_STATUS, encodeUint32(status)), encodeAttribute(ctaStatusMask, encodeUint32(mask))...)
}

// encode encodes the identity of a flow for its deletion. Without the tuple, the
// kernel would delete all entries.
func (f *Flow) encode() []byte {
	return append(encodeTuple(nl.CTA_TUPLE_REPLY, f.Protocol, f.Answers, f.Returns), encodeAttribute(nl.CTA_ID, encodeUint32(f.ID))...)
}

// encodeTuple encodes one direction of an entry. ICMP has no ports: a reply has its type and code, and the identifier.
func encodeTuple(kind uint16, p model.Protocol, from, to netip.AddrPort) []byte {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if from.Addr().Is6() {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	ends := append(encodeAttribute(nl.CTA_PROTO_SRC_PORT, encodeUint16(from.Port())), encodeAttribute(nl.CTA_PROTO_DST_PORT, encodeUint16(to.Port()))...)
	if p.IsEcho() {
		id, reply := uint16(ctaProtoICMPID), byte(icmpEchoReply)
		if p == model.ICMPv6 {
			id, reply = ctaProtoICMPv6ID, icmpv6EchoReply
		}
		ends = slices.Concat(encodeAttribute(id, encodeUint16(to.Port())), encodeAttribute(id+1, []byte{reply}), encodeAttribute(id+2, []byte{0}))
	}
	return encodeNested(kind,
		encodeNested(nl.CTA_TUPLE_IP, encodeAttribute(source, from.Addr().AsSlice()), encodeAttribute(destination, to.Addr().AsSlice())),
		encodeNested(nl.CTA_TUPLE_PROTO, encodeAttribute(nl.CTA_PROTO_NUM, []byte{byte(p)}), ends))
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
		case nl.CTA_TUPLE_ORIG:
			original = decodeTuple(a.Nested())
		case nl.CTA_TUPLE_REPLY:
			reply = decodeTuple(a.Nested())
		case nl.CTA_PROTOINFO:
			f.decodeState(a.Nested())
		case nl.CTA_STATUS:
			f.Answered = decodeNumber(a.Data)&seenReply != 0
		case nl.CTA_ID:
			f.ID = decodeNumber(a.Data)
		case nl.CTA_ZONE:
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
			case protocols.Type == nl.CTA_PROTOINFO_TCP && (a.Type == nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL || a.Type == nl.CTA_PROTOINFO_TCP_FLAGS_REPLY):
				f.decodeFlags(a)
			case a.Type != nl.CTA_PROTOINFO_TCP_STATE: // the number of the state of SCTP, too
			case protocols.Type == nl.CTA_PROTOINFO_TCP:
				f.Opening = state == nl.TCP_CONNTRACK_SYN_SENT
				f.Closing = state >= nl.TCP_CONNTRACK_LAST_ACK && state < nl.TCP_CONNTRACK_SYN_SENT2 // states without data
			case protocols.Type == nl.CTA_PROTOINFO_SCTP:
				f.Closing = state == sctpClosed || state == sctpShutdownAckSent
			}
		}
	}
}

// decodeFlags reads whether a side of a TCP connection was the first one to end it.
func (f *Flow) decodeFlags(a netlinkio.Attributes) {
	switch {
	case len(a.Data) == 0 || a.Data[0]&tcpClosedFirst == 0:
	case a.Type == nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL:
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
		case nl.CTA_TUPLE_IP:
			for part.Next() {
				switch part.Type {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					t.from, _ = netip.AddrFromSlice(part.Data)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					t.to, _ = netip.AddrFromSlice(part.Data)
				}
			}
		case nl.CTA_TUPLE_PROTO:
			for part.Next() {
				switch part.Type {
				case nl.CTA_PROTO_NUM:
					t.protocol = model.Protocol(decodeNumber(part.Data))
				case nl.CTA_PROTO_SRC_PORT:
					t.fromPort = uint16(decodeNumber(part.Data))
				case nl.CTA_PROTO_DST_PORT, ctaProtoICMPID, ctaProtoICMPv6ID:
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

func decodeNumber(b []byte) (n uint32) {
	for _, digit := range b {
		n = n<<8 | uint32(digit)
	}
	return n
}
