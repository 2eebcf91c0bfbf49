package bytecode

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

func (r *runner) load(s *run, o *op) bool {
	to := s.registers[o.to:]
	switch o.source.place {
	case inPacket:
		return r.loadHeader(s, o, to)
	case inMeta:
		return r.loadMeta(s, o, to)
	}
	return r.loadConnection(s, o, to)
}

func (r *runner) loadHeader(s *run, o *op, to []byte) bool {
	switch end := o.offset + o.length; {
	case o.source.number == unix.NFT_PAYLOAD_NETWORK_HEADER && end <= 40 && r.isKnown(s, o):
		clear(to[:(o.length+3)&^3])
		copy(to, s.header[o.offset:end])
		return true
	case o.source.number == unix.NFT_PAYLOAD_TRANSPORT_HEADER && end <= 4:
		clear(to[:4])
		copy(to, s.transport[o.offset:end])
		return true
	case o.source.number == unix.NFT_PAYLOAD_TRANSPORT_HEADER && o.offset == 13 && o.length == 1 && r.packet.Protocol == unix.IPPROTO_TCP:
		clear(to[:4])
		to[0] = tcpSYN
		if r.packet.Known == Answer {
			to[0] = tcpReset
		}
		return true
	}
	s.unknown(o, "a load of bytes "+strconv.Itoa(o.offset)+" of a header")
	return false
}

// Flags of TCP (linux/tcp.h).
const (
	tcpSYN   = 2
	tcpReset = 4
)

// isKnown reports whether the bytes of the header of IP are addresses or the protocol.
func (r *runner) isKnown(s *run, o *op) bool {
	protocol := 9
	if s.length == 16 {
		protocol = 6
	}
	return o.offset >= s.sourceAt() && o.offset+o.length <= s.destinationAt()+s.length || o.offset == protocol && o.length == 1
}

func (r *runner) loadMeta(s *run, o *op, to []byte) bool {
	clear(to[:4])
	hook := r.pathOf(s)[s.phase].hook
	in := r.packet.In
	out := r.machine.Out
	if r.packet.Bridged {
		out = in
	}
	if hook == unix.NF_INET_LOCAL_OUT || hook == unix.NF_INET_POST_ROUTING && (in == "" || r.packet.Bridged) {
		in = ""
	} else if in == "" {
		in = "lo"
	}
	if hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_IN {
		out = ""
	} else if s.isLocal {
		out = "lo"
	}
	switch o.source.number {
	case unix.NFT_META_L4PROTO:
		to[0] = r.packet.Protocol
	case unix.NFT_META_NFPROTO:
		to[0] = unix.NFPROTO_IPV4
		if s.length == 16 {
			to[0] = unix.NFPROTO_IPV6
		}
	case unix.NFT_META_IIFNAME:
		clear(to[:16])
		copy(to, in)
	case unix.NFT_META_OIFNAME:
		clear(to[:16])
		copy(to, out)
	case unix.NFT_META_IIF:
		binary.NativeEndian.PutUint32(to, indexOf(in))
	case unix.NFT_META_OIF:
		binary.NativeEndian.PutUint32(to, indexOf(out))
	case metaIPsec: // no packet was encrypted
	case metaInputKind: // the kernel ends the rule for an interface without a kind
		clear(to[:16])
		copy(to, "vrf")
		return r.packet.InVRF && hook == unix.NF_INET_LOCAL_IN
	case unix.NFT_META_MARK:
		binary.NativeEndian.PutUint32(to, s.mark)
	case unix.NFT_META_PRIORITY:
		if s.choice.isOneOf {
			s.unknown(o, "a load of the priority that a choice has left")
		}
		binary.NativeEndian.PutUint32(to, s.priority)
	default:
		s.unknown(o, "meta key "+strconv.Itoa(int(o.source.number)))
		return false
	}
	return true
}

// Keys from linux/netfilter/nf_tables.h that x/sys lacks.
const (
	metaIPsec     = 25 // NFT_META_SECPATH
	metaInputKind = 26 // NFT_META_IIFKIND
)

// indexOf returns a number for an interface: the one that loopback has, or that no interface has.
func indexOf(name string) uint32 {
	switch name {
	case "":
		return 0
	case "lo":
		return 1
	}
	return 1 << 30
}

func (r *runner) store(s *run, o *op) bool {
	value := binary.NativeEndian.Uint32(s.registers[o.from:])
	switch o.source {
	case field{place: inMeta, number: unix.NFT_META_MARK}:
		s.mark = value
	case field{place: inMeta, number: unix.NFT_META_PRIORITY}:
		s.setPriority(value, s.choice.registers&registersIn(o.from, 4) != 0)
	case field{place: inMeta, number: unix.NFT_META_NFTRACE}:
	case field{place: inConnection, number: unix.NFT_CT_MARK}:
		s.ctMark = value
	default:
		s.unknown(o, o.name+", which sets key "+strconv.Itoa(int(o.source.number)))
		return false
	}
	return true
}

// Bits of the state and the status of a connection (linux/netfilter/nf_conntrack_common.h).
const (
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
	statusExpected   = 1 << 0
	statusConfirmed  = 1 << 3
	statusSNAT       = 1 << 4
	statusDNAT       = 1 << 5
)

func (r *runner) loadConnection(s *run, o *op, to []byte) bool {
	clear(to[:4])
	put := func(at netip.AddrPort, port bool) bool {
		if port {
			binary.BigEndian.PutUint16(to, at.Port())
			return true
		}
		clear(to[:s.length])
		copy(to, at.Addr().AsSlice())
		return true
	}
	source, destination := s.original.source, s.original.destination
	if o.source.reply { // of an answer: from where the connection goes
		source, destination = s.to(), netip.AddrPortFrom(s.address(s.sourceAt()), s.original.source.Port())
	}
	switch o.source.number {
	case unix.NFT_CT_STATE:
		state := uint32(stateNew)
		switch r.packet.Known {
		case Answer:
			state = stateEstablished
		case Related:
			state = stateRelated
		}
		binary.NativeEndian.PutUint32(to, state)
	case unix.NFT_CT_STATUS:
		binary.NativeEndian.PutUint32(to, s.status(r.packet))
	case unix.NFT_CT_DIRECTION:
		if r.packet.Known == Answer {
			to[0] = 1 // IP_CT_DIR_REPLY
		}
	case unix.NFT_CT_MARK:
		binary.NativeEndian.PutUint32(to, s.ctMark)
	case unix.NFT_CT_SRC, unix.NFT_CT_SRC_IP, unix.NFT_CT_SRC_IP6:
		return put(source, false)
	case unix.NFT_CT_DST, unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6:
		return put(destination, false)
	case unix.NFT_CT_PROTO_SRC:
		return put(source, true)
	case unix.NFT_CT_PROTO_DST:
		return put(destination, true)
	case unix.NFT_CT_PROTOCOL:
		to[0] = r.packet.Protocol
	default:
		s.unknown(o, "ct key "+strconv.Itoa(int(o.source.number)))
		return false
	}
	return true
}

func (s *run) status(p *Packet) (bits uint32) {
	switch p.Known {
	case Older, Answer:
		bits = statusConfirmed
	case Related:
		bits = statusExpected
	}
	if s.translated {
		bits |= statusDNAT
	}
	if s.snat {
		bits |= statusSNAT
	}
	return bits
}
