package bytecode

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// choice is a number that a rule has chosen. It stays open until an operation needs it, and those that lead to
// the same element of a map are followed together.
type choice struct {
	by         *op    // nil: the number is settled
	registers  uint32 // that have the number: a bit for each four bytes
	inPriority bool   // of the packet
	isOneOf    bool   // the priority has one of several settled numbers
}

var priorityField = field{place: inMeta, number: unix.NFT_META_PRIORITY}

// registersIn returns the bits of the registers from an offset on.
func registersIn(at uint8, length int) uint32 { return (1<<((length+3)/4) - 1) << (at / 4) }

// choose loads a number. If the next operation only compares it, there are two ways.
func (r *runner) choose(s *run, o *op) {
	switch o.modulus {
	case 0:
		s.unknown(o, "the expression "+o.name+" without a modulus")
		return
	case 1:
		binary.NativeEndian.PutUint32(s.registers[o.to:], o.first)
		return
	}
	open := choice{by: o, registers: registersIn(o.to, 4)}
	if c := s.rule[s.next:]; len(c) > 0 && c[0].kind == opCompare && c[0].from == o.to && len(c[0].data) == 4 {
		if n := binary.NativeEndian.Uint32(c[0].data); n >= o.first && n-o.first < o.modulus {
			r.fork(s, open, n, 1)
			other := o.first
			if n == other {
				other++
			}
			s.settle(open, other, o.modulus-1)
			return
		}
	}
	s.by = o.chooser
	s.by.Of = string(s.registers[o.from : int(o.from)+o.length])
	s.choice = open
}

// fork begins another way with one of some numbers.
func (r *runner) fork(s *run, c choice, number, numbers uint32) *run {
	r.pending = append(r.pending, *s)
	other := &r.pending[len(r.pending)-1]
	other.settle(c, number, numbers)
	return other
}

// settle ends a choice with one of some numbers, which all lead to the same.
func (s *run) settle(c choice, number, numbers uint32) {
	s.share *= float64(numbers) / float64(c.by.modulus)
	s.put(c, number)
	s.choice = choice{isOneOf: numbers > 1 && c.inPriority}
}

func (s *run) put(c choice, number uint32) {
	for i := range len(s.registers) / 4 {
		if c.registers&(1<<i) != 0 {
			binary.NativeEndian.PutUint32(s.registers[4*i:], number)
		}
	}
	if c.inPriority {
		s.priority = number
	}
}

// setPriority sets the priority, to an open number or not.
func (s *run) setPriority(value uint32, isOpen bool) {
	s.priority, s.choice.inPriority, s.choice.isOneOf = value, isOpen, false
}

// keepOpen follows the open number through the next operation, or settles it if the operation needs it.
func (r *runner) keepOpen(s *run, o *op) {
	c := &s.choice
	switch {
	case c.registers == 0 && !c.inPriority:
		*c = choice{} // nothing can depend on it
	case o.kind == opNothing || o.kind == opVerdict || o.kind == opStore && o.source == priorityField:
	case o.kind == opImmediate:
		c.registers &^= registersIn(o.to, len(o.data))
	case o.kind == opLoad && o.source == priorityField:
		if c.registers &^= registersIn(o.to, 4); c.inPriority {
			c.registers |= registersIn(o.to, 4)
		}
	case o.kind == opLoad && o.source.place == inPacket:
		c.registers &^= registersIn(o.to, o.length)
	case o.kind == opLoad && o.source == field{place: inMeta, number: unix.NFT_META_L4PROTO}:
		c.registers &^= registersIn(o.to, 4)
	case o.kind == opLookup && !o.set.is(unix.NFT_SET_EVAL):
		if c.registers&registersIn(o.from, o.set.keyLength) != 0 {
			r.settleAlike(s, o)
		} else if o.hasTo && !o.isVerdict {
			c.registers &^= registersIn(o.to, o.set.dataLength)
		}
	default:
		open := *c
		for i := range open.by.modulus - 1 {
			r.fork(s, open, open.by.first+i+1, 1).next--
		}
		s.settle(open, open.by.first, 1)
	}
}

// settleAlike follows the numbers together with which a lookup finds equal elements.
func (r *runner) settleAlike(s *run, o *op) {
	type group struct {
		before, after   *element
		number, numbers uint32
	}
	var few [16]group
	groups, open := few[:0], s.choice
	for i := range open.by.modulus {
		g := group{number: open.by.first + i, numbers: 1}
		s.put(open, g.number)
		g.before, g.after = r.elements(s, o.set, s.registers[o.from:])
		known := slices.IndexFunc(groups, func(k group) bool { return r.areAlike(k.before, g.before) && r.areAlike(k.after, g.after) })
		if known < 0 {
			groups = append(groups, g)
		} else {
			groups[known].numbers++
		}
	}
	for _, g := range groups[1:] {
		r.fork(s, open, g.number, g.numbers).next--
	}
	s.settle(open, groups[0].number, groups[0].numbers)
}

// areAlike reports whether a packet experiences the same with two elements.
func (r *runner) areAlike(a, b *element) bool {
	return a == b || isSame(a, b) && a.isReferenced == b.isReferenced && within(a.over, r.packet.Exceeds) == within(b.over, r.packet.Exceeds)
}
