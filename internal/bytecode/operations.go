package bytecode

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// operations runs the rest of a rule, and returns false if the packet ends there.
func (r *runner) operations(s *run) bool {
	for s.next < len(s.rule) {
		o := &s.rule[s.next]
		s.next++
		matches := true
		switch o.kind {
		case opNothing:
		case opLoad:
			matches = r.load(s, o)
		case opStore:
			matches = r.store(s, o)
		case opCompare:
			matches = compare(o.operator, bytes.Compare(s.registers[o.from:int(o.from)+len(o.data)], o.data))
		case opRange:
			value := s.registers[o.from : int(o.from)+len(o.data)]
			matches = (bytes.Compare(value, o.data) >= 0 && bytes.Compare(value, o.other) <= 0) == (o.operator == 0)
		case opBitwise:
			for i := range o.data {
				s.registers[int(o.to)+i] = s.registers[int(o.from)+i]&o.data[i] ^ o.other[i]
			}
		case opByteOrder:
			s.swap(o)
		case opImmediate:
			copy(s.registers[o.to:], o.data)
		case opAddressType:
			r.addressType(s, o)
		case opChoose:
			r.choose(s, o)
		case opLookup:
			e := r.find(s, o)
			if matches = (e != nil) == (o.flags&lookupInvert == 0) && (e == nil || r.within(e.over)); matches && e != nil && o.hasTo {
				if e.verdict.given {
					return r.leave(s, o, e.verdict)
				}
				copy(s.registers[o.to:], e.data)
			}
			if e != nil && e.isReferenced {
				s.unknown(o, "an object of a map")
			}
		case opDynset:
			matches = r.change(s, o)
		case opOver:
			matches = r.packet.Exceeds
		case opWithin:
			matches = !r.packet.Exceeds
		default:
			return r.act(s, o)
		}
		if s.outcome.Verdict == Unknown {
			r.end(s)
			return false
		}
		if !matches {
			break
		}
	}
	s.rule = nil
	return true
}

// within reports whether the expressions of an element match.
func (r *runner) within(all []op) bool {
	for i := range all {
		switch k := all[i].kind; {
		case k == opOver && !r.packet.Exceeds, k == opWithin && r.packet.Exceeds:
			return false
		}
	}
	return true
}

// act runs an operation that ends the rule.
func (r *runner) act(s *run, o *op) bool {
	switch o.kind {
	case opVerdict:
		return r.leave(s, o, o.verdict)
	case opReject:
		s.outcome.Verdict = Reject
		if o.isTCPReset {
			s.outcome.Verdict = Reset
		}
		r.end(s)
		return false
	case opTranslate, opRedirect, opMasquerade:
		r.translate(s, o)
		return r.leave(s, o, verdict{code: codeAccept})
	}
	s.unknown(o, "the expression "+o.name)
	r.end(s)
	return false
}

// translate sets up a translation. The kernel does not translate connections that are older than
// its nat chains.
func (r *runner) translate(s *run, o *op) {
	if r.packet.Known == Older || r.packet.Known == Answer {
		return
	}
	switch {
	case o.kind == opMasquerade:
		s.snat, s.outcome.Masquerade = true, true
	case o.kind == opTranslate && o.isSourceNAT:
		s.snat = true
		s.outcome.From = netip.AddrPortFrom(s.loaded(o.from), s.loadedPort(o))
	case o.kind == opRedirect:
		s.outcome.Redirected = true
		local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if s.length == 16 {
			local = netip.IPv6Loopback()
		}
		if i := slices.IndexFunc(r.machine.Local, func(a netip.Addr) bool { return a.BitLen() == local.BitLen() }); i >= 0 && r.packet.In != "" {
			local = r.machine.Local[i]
		}
		s.redirect(local, s.loadedPort(o))
	default:
		to := s.address(s.destinationAt())
		if o.hasFrom {
			to = s.loaded(o.from)
		}
		s.redirect(to, s.loadedPort(o))
	}
}

func (s *run) redirect(to netip.Addr, port uint16) {
	before := s.to()
	s.dnat = true
	s.set(s.destinationAt(), to)
	if port != 0 {
		binary.BigEndian.PutUint16(s.transport[2:], port)
	}
	s.translated = s.to() != before
}

func (s *run) loaded(at uint8) netip.Addr {
	a, _ := netip.AddrFromSlice(s.registers[at : int(at)+s.length])
	return a
}

func (s *run) loadedPort(o *op) uint16 {
	if !o.hasTo {
		return 0
	}
	return binary.BigEndian.Uint16(s.registers[o.to:])
}

// Operators of comparisons (enum nft_cmp_ops).
func compare(operator uint32, c int) bool {
	switch operator {
	case unix.NFT_CMP_EQ:
		return c == 0
	case unix.NFT_CMP_NEQ:
		return c != 0
	case unix.NFT_CMP_LT:
		return c < 0
	case unix.NFT_CMP_LTE:
		return c <= 0
	case unix.NFT_CMP_GT:
		return c > 0
	}
	return c >= 0
}

// swap changes the order of the bytes of each number: the kernel's is that of this machine, which
// is little endian, so both directions are the same.
func (s *run) swap(o *op) {
	size := int(o.modulus)
	for i := 0; i < o.length; i += size {
		part := [8]byte{}
		n := copy(part[:], s.registers[int(o.from)+i:int(o.from)+min(i+size, o.length)])
		slices.Reverse(part[:n])
		copy(s.registers[int(o.to)+i:], part[:n])
	}
}

// addressType loads what kind of address the source or the destination is (RTN_* of
// linux/rtnetlink.h).
func (r *runner) addressType(s *run, o *op) {
	at := s.destinationAt()
	if o.flags&unix.NFTA_FIB_F_SADDR != 0 {
		at = s.sourceAt()
	}
	a, typ := s.address(at), uint32(unix.RTN_UNICAST)
	switch {
	case r.isLocal(a):
		typ = unix.RTN_LOCAL
	case a.IsMulticast():
		typ = unix.RTN_MULTICAST
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		typ = unix.RTN_BROADCAST
	}
	binary.NativeEndian.PutUint32(s.registers[o.to:], typ)
}

// choose loads each number in turn: this run goes on with the first one, and the others wait. If
// the next operation only compares the number, there are two ways.
func (r *runner) choose(s *run, o *op) {
	if o.modulus == 0 {
		s.unknown(o, "the expression "+o.name+" without a modulus")
		return
	}
	way := func(n uint32, share float64) {
		other := *s
		other.share *= share
		binary.NativeEndian.PutUint32(other.registers[o.to:], n)
		r.pending = append(r.pending, other)
	}
	whole := s.share
	if c := s.rule[s.next:]; len(c) > 0 && c[0].kind == opCompare && c[0].from == o.to && len(c[0].data) == 4 && o.modulus > 1 {
		if n := binary.NativeEndian.Uint32(c[0].data); n >= o.first && n-o.first < o.modulus {
			way(n, 1/float64(o.modulus))
			s.share = whole * float64(o.modulus-1) / float64(o.modulus)
			other := o.first
			if n == other {
				other++
			}
			binary.NativeEndian.PutUint32(s.registers[o.to:], other)
			return
		}
	}
	if o.modulus > 1 {
		s.by = o.chooser
		s.by.Of = string(s.registers[o.from : int(o.from)+o.length])
	}
	for i := uint32(1); i < o.modulus; i++ {
		way(o.first+i, 1/float64(o.modulus))
	}
	s.share = whole / float64(o.modulus)
	binary.NativeEndian.PutUint32(s.registers[o.to:], o.first)
}

// find looks up a key: in a dynamic set first what this packet has left, then what others have.
func (r *runner) find(s *run, o *op) *element {
	key := s.registers[o.from:]
	if !o.set.is(unix.NFT_SET_EVAL) {
		return o.set.find(key)
	}
	for l := s.left; l != nil; l = l.before {
		if l.set == o.set && bytes.HasPrefix(key, []byte(l.element.Key)) {
			if l.element.Deleted {
				return nil
			}
			return &element{data: []byte(l.element.Data)}
		}
	}
	for _, e := range slices.Backward(r.machine.Bound) {
		if e.Set != o.set.name || !bytes.HasPrefix(key, []byte(e.Key)) {
			continue
		}
		if e.Deleted {
			return nil
		}
		return &element{data: []byte(e.Data)}
	}
	return o.set.find(key)
}

// change adds an element to a dynamic set, or deletes it.
func (r *runner) change(s *run, o *op) bool {
	key := string(s.registers[o.from : int(o.from)+o.set.keyLength])
	data := ""
	if o.hasTo {
		data = string(s.registers[o.to : int(o.to)+o.set.dataLength])
	}
	if known := r.find(s, o); known != nil && known != o.set.catches { // an update keeps its data
		data = string(known.data)
	}
	s.bind(o, data, key)
	for i := range o.limits {
		if o.limits[i].kind == opUnknown {
			s.unknown(o, "the expression "+o.limits[i].name+" of a set")
		}
	}
	return r.within(o.limits) && o.flags&dynsetInvert == 0
}

// load loads a field of the packet, or of its connection.
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
	} else if r.isLocal(s.address(s.destinationAt())) {
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
	case unix.NFT_META_MARK:
		binary.NativeEndian.PutUint32(to, s.mark)
	case unix.NFT_META_PRIORITY:
		binary.NativeEndian.PutUint32(to, s.priority)
	default:
		s.unknown(o, "meta key "+strconv.Itoa(int(o.source.number)))
		return false
	}
	return true
}

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
		s.priority = value
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
