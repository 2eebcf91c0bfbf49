package bytecode

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// operations runs the rest of a rule, and returns false if the packet ends there.
func (r *runner) operations(s *run) bool {
	for s.next < len(s.rule) {
		o := &s.rule[s.next]
		s.next++
		if s.choice.by != nil {
			r.keepOpen(s, o)
		}
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
			if matches = (e != nil) == (o.flags&lookupInvert == 0) && (e == nil || within(e.over, r.packet.Exceeds)); matches && e != nil && o.hasTo {
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

// within reports whether the expressions of an element match, if its limits are reached or not.
func within(all []op, exceeds bool) bool {
	for i := range all {
		switch k := all[i].kind; {
		case k == opOver && !exceeds, k == opWithin && exceeds:
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
		r.redirect(s, local, s.loadedPort(o))
	default:
		to := s.address(s.destinationAt())
		if o.hasFrom {
			to = s.loaded(o.from)
		}
		r.redirect(s, to, s.loadedPort(o))
	}
}

func (r *runner) redirect(s *run, to netip.Addr, port uint16) {
	before := s.to()
	s.dnat = true
	s.set(s.destinationAt(), to)
	if port != 0 {
		binary.BigEndian.PutUint16(s.transport[2:], port)
	}
	s.translated, s.isLocal = s.to() != before, r.isLocal(to)
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

// find looks up a key: in a dynamic set first what this packet has left, then what others have.
func (r *runner) find(s *run, o *op) *element {
	key := s.registers[o.from:]
	if !o.set.is(unix.NFT_SET_EVAL) {
		return r.findAt(s, o.set, key)
	}
	for l := s.left; l != nil; l = l.before {
		if r.isOne(l.set, o.set) && bytes.HasPrefix(key, []byte(l.element.Key)) {
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

// isOne reports whether two sets are the same one, before and after a commit.
func (r *runner) isOne(a, b *set) bool { return a == b || r.commit != nil && r.commit.twins[a] == b }

// change adds an element to a dynamic set, or deletes it. The rule ends where a set is full.
func (r *runner) change(s *run, o *op) bool {
	key := string(s.registers[o.from : int(o.from)+o.set.keyLength])
	data := ""
	if o.hasTo {
		data = string(s.registers[o.to : int(o.to)+o.set.dataLength])
	}
	known := r.find(s, o)
	if known == o.set.catches {
		known = nil
	}
	switch {
	case known != nil: // an update keeps its data
		data = string(known.data)
	case o.operator != dynsetDelete && slices.Contains(r.machine.Full, o.setName):
		return o.flags&dynsetInvert != 0
	}
	s.bind(o, data, key)
	for i := range o.limits {
		if o.limits[i].kind == opUnknown {
			s.unknown(o, "the expression "+o.limits[i].name+" of a set")
		}
	}
	exceeds := r.packet.Exceeds || slices.ContainsFunc(r.machine.Exceeded, func(e Element) bool { return e.Set == o.setName && e.Key == key })
	return within(o.limits, exceeds) && o.flags&dynsetInvert == 0
}
