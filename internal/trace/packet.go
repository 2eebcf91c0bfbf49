package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Packet has what the headers of a packet say.
type Packet struct {
	Source, Destination netip.AddrPort // port zero: the protocol has none
	Protocol            model.Protocol
	Flags               uint8  // of TCP
	Sequence            uint32 // of TCP
	Type, Code          uint8  // of ICMP and ICMPv6
	In, Out             int    // numbers of the interfaces; zero: none
}

// Flags of TCP.
const (
	flagSYN = 0x02
	flagRST = 0x04
)

// String returns for example "10.128.0.5:41234 > 10.96.0.10:80".
func (p *Packet) String() string {
	return model.EndpointText(p.Source) + " > " + model.EndpointText(p.Destination)
}

// Interface returns the name of the interface on which the packet came in; empty: the machine
// itself has sent it.
func (p *Packet) Interface() string { return interfaceName(p.In) }

type rawPacket struct {
	protocol           uint32 // NFPROTO_IPV4 or NFPROTO_IPV6
	network, transport []byte
	in, out            uint32
}

// Lengths of headers, and offsets in them.
const (
	length4, protocol4, source4, destination4 = 20, 9, 12, 16
	length6, next6, source6, destination6     = 40, 6, 8, 24
	portsLength                               = 4
	tcpSequence, tcpFlags                     = 4, 13
)

// decodePacket returns the packet, or nil if the message has no headers.
func (r *rawPacket) decodePacket() *Packet {
	p := &Packet{In: int(r.in), Out: int(r.out)}
	var from, to netip.Addr
	switch {
	case r.protocol == unix.NFPROTO_IPV4 && len(r.network) >= length4:
		from, _ = netip.AddrFromSlice(r.network[source4:][:4])
		to, _ = netip.AddrFromSlice(r.network[destination4:][:4])
		p.Protocol = model.Protocol(r.network[protocol4])
	case r.protocol == unix.NFPROTO_IPV6 && len(r.network) >= length6:
		from, _ = netip.AddrFromSlice(r.network[source6:][:16])
		to, _ = netip.AddrFromSlice(r.network[destination6:][:16])
		p.Protocol = model.Protocol(r.network[next6])
	default:
		return nil
	}
	p.Source, p.Destination = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	t := r.transport
	switch {
	case p.Protocol.IsEcho() && len(t) >= 2:
		p.Type, p.Code = t[0], t[1]
	case hasPorts(p.Protocol) && len(t) >= portsLength:
		p.Source = netip.AddrPortFrom(from, binary.BigEndian.Uint16(t))
		p.Destination = netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[2:]))
		if p.Protocol == model.TCP && len(t) > tcpFlags {
			p.Sequence, p.Flags = binary.BigEndian.Uint32(t[tcpSequence:]), t[tcpFlags]
		}
	}
	return p
}

func hasPorts(p model.Protocol) bool { return p == model.TCP || p == model.UDP || p == model.SCTP }

// sameContent reports whether two packets may be one that was translated in between.
func (p *Packet) sameContent(o *Packet) bool {
	return p.Protocol == o.Protocol && p.Flags == o.Flags && p.Sequence == o.Sequence && p.Type == o.Type && p.Code == o.Code
}

// icmpErrors are errors by protocol, type and code.
var icmpErrors = map[model.Protocol]map[[2]uint8]string{
	model.ICMP: {
		{3, 0}: "network unreachable", {3, 1}: "host unreachable", {3, 3}: "port unreachable", {3, 4}: "fragmentation needed",
		{3, 9}: "network prohibited", {3, 10}: "host prohibited", {3, 13}: "administratively prohibited", {11, 0}: "time exceeded",
	},
	model.ICMPv6: {
		{1, 0}: "no route", {1, 1}: "administratively prohibited", {1, 3}: "address unreachable", {1, 4}: "port unreachable",
		{1, 6}: "route rejected", {2, 0}: "packet too big", {3, 0}: "time exceeded",
	},
}

func (p *Packet) icmpText() string {
	return cmp.Or(icmpErrors[p.Protocol][[2]uint8{p.Type, p.Code}], fmt.Sprintf("type %d, code %d", p.Type, p.Code))
}
