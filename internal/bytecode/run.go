package bytecode

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth is the kernel's limit of nested jumps (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// frame is a place in a chain: the next rule.
type frame struct {
	chain *chain
	next  int
}

// run is a packet on its way, between two operations. A choice copies it.
type run struct {
	header     [40]byte // of IP
	length     int      // of an address
	transport  [4]byte  // the ports
	original   tuple
	mark       uint32
	ctMark     uint32
	priority   uint32
	translated bool // the destination, according to connection tracking
	dnat, snat bool // decided: the other nat chains are passed over
	outcome    Outcome
	left       *leftover
	by         Chooser

	isLocal   bool // the destination
	choice    choice
	phase     int // of the path
	base      int // of its chains: the next one
	rule      []op
	next      int // operation of the rule
	stack     [maxDepth]frame
	depth     int
	registers [64 + 16]byte
	share     float64
	steps     int

	isNew     bool // the rules of the base chain are those after the commit
	differing int  // what the packet has met so far that the commit changes
}

type tuple struct {
	source, destination netip.AddrPort
}

// leftover is a list of changes of dynamic sets, the last one first.
type leftover struct {
	set     *set
	element Element
	before  *leftover
}

// phase is a hook on the path of a packet.
type phase struct {
	hook uint32
	// again: the loopback interface brings the packet back, whose translation is decided.
	again bool
}

var (
	arriving = []phase{{hook: unix.NF_INET_PRE_ROUTING}}
	toSelf   = []phase{{hook: unix.NF_INET_PRE_ROUTING}, {hook: unix.NF_INET_LOCAL_IN}}
	through  = []phase{{hook: unix.NF_INET_PRE_ROUTING}, {hook: unix.NF_INET_FORWARD}, {hook: unix.NF_INET_POST_ROUTING}}
	sent     = []phase{{hook: unix.NF_INET_LOCAL_OUT}, {hook: unix.NF_INET_POST_ROUTING}}
	looped   = []phase{{hook: unix.NF_INET_LOCAL_OUT}, {hook: unix.NF_INET_POST_ROUTING}, {hook: unix.NF_INET_PRE_ROUTING, again: true}, {hook: unix.NF_INET_LOCAL_IN, again: true}}
)

type runner struct {
	machine *Machine
	packet  *Packet
	path    *[hooks][]*chain
	pending []run // ways that are followed later
	results []Result

	commit      *Commit // nil: none
	moments     moments
	differing   int    // the most that a way of the packet has met
	differs     bool   // a rule or an element that it has met
	inIntervals uint64 // a bit for each of them that was in an interval
}

// Follow returns how a packet may end. The shares of the results add up to 1.
func (m *Machine) Follow(p Packet) []Result {
	if m.Rules.compiled == nil {
		m.Rules.compile()
	}
	r := runner{machine: m, packet: &p, path: m.Rules.compiled[familyOf(p)]}
	return r.follow()
}

func familyOf(p Packet) uint8 {
	if p.Destination.Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func (r *runner) follow() []Result {
	m := r.machine
	r.pending = append(m.pending[:0], run{})
	r.pending[0].start(r)
	for len(r.pending) > 0 {
		last := len(r.pending) - 1
		m.now = r.pending[last]
		r.pending = r.pending[:last]
		r.finish(&m.now)
	}
	m.pending = r.pending
	return r.results
}

// forwardedPriority is the one of a type of service.
const forwardedPriority = 6

// initialPriority is of packets before all rules, so that one that rules change shows.
const initialPriority = 0x70007

// priority returns what the packet has before all rules.
func (p *Packet) priority() uint32 { return cmp.Or(p.Priority, initialPriority) }

func (s *run) start(r *runner) {
	p := r.packet
	s.length, s.share, s.priority = p.Destination.BitLen()/8, 1, p.priority()
	if s.length == 4 {
		s.header[0], s.header[9] = 0x45, p.Protocol
	} else {
		s.header[0], s.header[6] = 0x60, p.Protocol
	}
	s.set(s.sourceAt(), p.Source)
	s.set(s.destinationAt(), p.Destination)
	s.isLocal = r.isLocal(p.Destination)
	if isICMP(p.Protocol) {
		switch s.transport[0] = p.ICMPType; {
		case p.ICMPType != 0:
		case p.Protocol == unix.IPPROTO_ICMP:
			s.transport[0] = 8 // ICMP_ECHO
		default:
			s.transport[0] = 128 // ICMPV6_ECHO_REQUEST
		}
	} else if hasPorts(p.Protocol) {
		binary.BigEndian.PutUint16(s.transport[:], p.SourcePort)
		binary.BigEndian.PutUint16(s.transport[2:], p.Port)
	}
	s.original = tuple{netip.AddrPortFrom(p.Source, p.SourcePort), netip.AddrPortFrom(p.Destination, p.Port)}
}

func isICMP(protocol uint8) bool {
	return protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6
}

func hasPorts(protocol uint8) bool {
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE:
		return true
	}
	return false
}

func (s *run) sourceAt() int {
	if s.length == 4 {
		return 12
	}
	return 8
}

func (s *run) destinationAt() int { return s.sourceAt() + s.length }

func (s *run) set(at int, a netip.Addr) {
	if s.length == 4 && a.Is4() {
		b := a.As4()
		copy(s.header[at:], b[:])
	} else if s.length == 16 {
		b := a.As16()
		copy(s.header[at:], b[:])
	}
}

func (s *run) address(at int) netip.Addr {
	a, _ := netip.AddrFromSlice(s.header[at : at+s.length])
	return a
}

func (s *run) to() netip.AddrPort {
	return netip.AddrPortFrom(s.address(s.destinationAt()), binary.BigEndian.Uint16(s.transport[2:]))
}

// path returns the hooks of a packet. Where it goes is known behind prerouting.
func (r *runner) pathOf(s *run) []phase {
	switch {
	case r.packet.In == "" && s.isLocal:
		return looped
	case r.packet.In == "":
		return sent
	case s.phase == 0:
		return arriving
	case s.isLocal:
		return toSelf
	}
	return through
}

func (r *runner) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(r.machine.Local, a)
}

// finish runs a packet until it ends, or until a choice puts the other ways into pending.
func (r *runner) finish(s *run) {
	for {
		if s.rule != nil {
			if !r.operations(s) {
				return
			}
			continue
		}
		if s.depth > 0 {
			top := &s.stack[s.depth-1]
			if top.next < len(top.chain.rules) {
				s.rule, s.next = top.chain.rules[top.next], 0
				top.next++
				continue
			}
			if s.depth--; s.depth > 0 || !top.chain.isBase || !top.chain.drops {
				continue
			}
			s.outcome.Verdict = Drop
			r.end(s)
			return
		}
		if !r.nextChain(s) {
			r.end(s)
			return
		}
	}
}

// nextChain enters the next base chain, and returns false at the end of the path.
func (r *runner) nextChain(s *run) bool {
	for {
		path := r.pathOf(s)
		if s.phase >= len(path) {
			return false
		}
		at := path[s.phase]
		list := r.path[at.hook]
		for s.base < len(list) {
			c := list[s.base]
			s.base++
			if c.isNAT && (at.again || s.decided(at.hook)) {
				continue
			}
			if c = r.enter(s, c); c != nil {
				s.stack[0], s.depth = frame{chain: c}, 1
				return true
			}
		}
		s.base = 0
		s.phase++
		if at.hook == unix.NF_INET_PRE_ROUTING && !at.again && s.length == 4 && !s.isLocal {
			s.setPriority(forwardedPriority, false) // ip_forward sets the one of the type of service
		}
	}
}

func (s *run) decided(hook uint32) bool {
	if hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT {
		return s.dnat
	}
	return s.snat
}

func (r *runner) end(s *run) {
	o := &s.outcome
	if o.Verdict == Pass {
		o.To, o.Translated = s.to(), s.translated
		o.Priority, o.Mark = s.priority, s.mark
		if r.packet.Known == Older || r.packet.In != "" && s.isLocal || s.priority == r.packet.priority() || s.priority == forwardedPriority {
			o.Priority = 0 // the packet's own
		} else if s.priority == 0 {
			o.Priority = clearedPriority
		}
	} else if o.Verdict != Unknown {
		*o = Outcome{Verdict: o.Verdict, Redirected: o.Redirected}
	}
	var left []Element
	for l := s.left; l != nil; l = l.before {
		left = append(left, l.element)
	}
	for i := range r.results {
		if known := &r.results[i]; known.Outcome == *o && len(known.Left) == len(left) {
			if known.Share += s.share; known.By != s.by {
				known.By = Chooser{}
			}
			return
		}
	}
	slices.Reverse(left)
	r.results = append(r.results, Result{*o, s.share, s.by, left})
}

// clearedPriority stands for a priority of 0 where the packet had another one before all rules.
const clearedPriority = 1

func (s *run) unknown(o *op, why string) {
	where := ""
	if s.depth > 0 {
		c := s.stack[s.depth-1].chain
		where = " in chain " + c.name + " of table " + c.table.name
	}
	s.outcome = Outcome{Verdict: Unknown, Why: why + where}
}

// maxSteps ends loops of chains, which the kernel would not load.
const maxSteps = 100_000

// leave ends a rule with a verdict, and returns false if the packet ends.
func (r *runner) leave(s *run, o *op, v verdict) bool {
	s.rule = nil
	switch v.code {
	case codeContinue, codeBreak:
	case codeAccept:
		s.depth = 0
	case codeDrop:
		s.outcome.Verdict = Drop
		r.end(s)
		return false
	case codeReturn:
		if s.depth--; s.depth == 0 && s.stack[0].chain.drops {
			s.outcome.Verdict = Drop
			r.end(s)
			return false
		}
	case codeGoto, codeJump:
		if s.steps++; v.to == nil || s.depth == maxDepth || s.steps > maxSteps {
			s.unknown(o, "a jump to chain "+v.chain+", which is not there or too deep,")
			r.end(s)
			return false
		}
		if v.code == codeGoto && s.depth > 0 {
			// The policy of the base chain counts when the chain ends.
			s.stack[s.depth-1].next = len(s.stack[s.depth-1].chain.rules)
			if s.depth > 1 {
				s.depth--
			}
		}
		s.stack[s.depth] = frame{chain: r.inGeneration(s, v.to)}
		s.depth++
	default:
		s.unknown(o, "a verdict to queue a packet")
		r.end(s)
		return false
	}
	return true
}

func (s *run) bind(o *op, data string, key string) {
	e := Element{Set: o.setName, Key: key, Data: data, Timeout: time.Duration(o.timeout) * time.Millisecond, Deleted: o.operator == dynsetDelete}
	s.left = &leftover{o.set, e, s.left}
}
