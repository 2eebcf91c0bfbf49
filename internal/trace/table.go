package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Match selects the connections to follow.
type Match struct {
	Protocol model.Protocol // TCP, UDP or SCTP
	Frontend netip.AddrPort // as clients dial it
	Client   netip.Addr     // the zero value: any
	FromNode bool           // only connections that this machine opens itself
}

// TablePrefix begins the name of the table of a trace. The rest is the number of its socket,
// which no other socket of the network namespace has.
const TablePrefix = "nftproxy-trace-"

// Chains of our table: one of each kind in each hook that it concerns. Kernels call chains
// of one hook in the order of their priorities.
const (
	// kindFirst comes before all others and marks what may be the first packet of a
	// connection. Connection tracking has not seen it yet.
	kindFirst = "first"
	// kindReply marks the first answers, as soon as connection tracking knows them.
	kindReply = "reply"
	// kindNew marks the first packets according to connection tracking.
	kindNew = "new"
	// kindUntracked marks packets that connection tracking does not follow.
	kindUntracked = "untracked"
	// kindLast comes after all others and has no rules: its message says that the packet
	// has passed the hook, and with which addresses.
	kindLast = "last"
)

// Priorities right behind connection tracking.
const (
	priorityReply     = -199
	priorityNew       = -198
	priorityUntracked = -197
)

// The limit of each rule that marks packets. A packet leads to about as many messages as it
// meets rules.
const (
	marksPerSecond = 20
	marksAtOnce    = 20
)

var hooks = []struct {
	name   string
	number *nftables.ChainHook
	enters bool // packets that enter it may be marked
}{
	{"prerouting", nftables.ChainHookPrerouting, true},
	{"input", nftables.ChainHookInput, false},
	{"forward", nftables.ChainHookForward, false},
	{"output", nftables.ChainHookOutput, true},
	{"postrouting", nftables.ChainHookPostrouting, false},
}

// addTable adds the table of a trace in one transaction. It belongs to the socket of the
// connection and has not the flag "persist": the kernel deletes it when the socket is closed.
func addTable(c *nftables.Conn, name string, m Match) error {
	t := c.CreateTable(&nftables.Table{Name: name, Family: nftablesFamily(m.familyOf()), Flags: nftables.TableFlagOwner})
	for _, h := range hooks {
		chain := func(kind string, priority int32, rules ...[]expr.Any) {
			ch := c.AddChain(&nftables.Chain{
				Name: h.name + "-" + kind, Table: t, Type: nftables.ChainTypeFilter,
				Hooknum: h.number, Priority: nftables.ChainPriorityRef(nftables.ChainPriority(priority)),
			})
			for _, r := range rules {
				c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: append(r, markExpressions()...)})
			}
		}
		if !h.enters {
			chain(kindFirst, math.MinInt32)
		} else {
			first, reply, opens, untracked := m.rulesForHook(h.name)
			chain(kindFirst, math.MinInt32, first...)
			chain(kindReply, priorityReply, reply...)
			chain(kindNew, priorityNew, opens...)
			chain(kindUntracked, priorityUntracked, untracked...)
		}
		chain(kindLast, math.MaxInt32-1)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add table %s %s: %w", Family(t.Family), name, err)
	}
	return nil
}

func nftablesFamily(f model.Family) nftables.TableFamily {
	if f == model.IPv6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

func (m Match) familyOf() model.Family { return model.FamilyOf(m.Frontend.Addr()) }

// rulesForHook returns the conditions of the rules in the chains of a hook that packets enter.
func (m Match) rulesForHook(hook string) (first, reply, opens, untracked [][]expr.Any) {
	reply = [][]expr.Any{m.matchAnswers()}
	if hook == "prerouting" && m.FromNode {
		return nil, reply, nil, nil
	}
	return [][]expr.Any{slices.Concat(m.matchPacket(), m.matchOpening())}, reply,
		[][]expr.Any{slices.Concat(m.matchPacket(), matchState(stateNew))},
		[][]expr.Any{slices.Concat(m.matchPacket(), m.matchOpening(), matchState(stateUntracked|stateInvalid))}
}

// markExpressions is "limit rate 20/second burst 20 packets meta nftrace set 1".
func markExpressions() []expr.Any {
	return []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: marksPerSecond, Burst: marksAtOnce, Unit: expr.LimitTimeSecond},
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1},
	}
}

// equal compares what an expression has loaded into the first register.
func equal(load expr.Any, value []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value}}
}

// compareBits compares bits of what an expression has loaded into the first register.
func compareBits(load expr.Any, mask, value []byte, op expr.CmpOp) []expr.Any {
	return []expr.Any{load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))},
		&expr.Cmp{Op: op, Register: 1, Data: value}}
}

func encodePort(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// matchPacket is "meta l4proto P ip daddr F th dport N", and with a client "ip saddr C".
func (m Match) matchPacket() []expr.Any {
	source, destination, length := uint32(source4), uint32(destination4), uint32(4)
	if m.familyOf() == model.IPv6 {
		source, destination, length = source6, destination6, 16
	}
	address := func(offset uint32, a netip.Addr) []expr.Any {
		return equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}, a.AsSlice())
	}
	out := slices.Concat(equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{byte(m.Protocol)}),
		address(destination, m.Frontend.Addr()),
		equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, encodePort(m.Frontend.Port())))
	if m.Client.IsValid() {
		out = append(out, address(source, m.Client)...)
	}
	return out
}

// matchOpening matches packets that can be the first ones: of TCP "tcp flags & (fin | syn | rst |
// ack) == syn", of SCTP an INIT chunk. Every datagram of UDP can be one.
func (m Match) matchOpening() []expr.Any {
	at := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}
	}
	const finSYNRSTACK, firstChunk, chunkINIT = 0x17, 12, 1
	switch m.Protocol {
	case model.TCP:
		return compareBits(at(tcpFlags), []byte{finSYNRSTACK}, []byte{flagSYN}, expr.CmpOpEq)
	case model.SCTP:
		return equal(at(firstChunk), []byte{chunkINIT})
	}
	return nil
}

// States of connection tracking, as nft has them.
const (
	stateInvalid   = 1
	stateNew       = 8
	stateUntracked = 64
)

func matchState(states uint32) []expr.Any {
	return compareBits(&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, binary.NativeEndian.AppendUint32(nil, states), make([]byte, 4), expr.CmpOpNeq)
}

// statusAssured is IPS_ASSURED: a connection has it after its first packets in both
// directions.
const statusAssured = 1 << 2

// matchAnswers is "ct direction reply ct original protocol P ct original ip daddr F ct original
// proto-dst N ct status & assured == 0", and with a client "ct original ip saddr C".
// Errors of ICMP about a connection belong to its direction "reply", too.
func (m Match) matchAnswers() []expr.Any {
	original := func(key expr.CtKey, value []byte) []expr.Any {
		return equal(&expr.Ct{Key: key, Register: 1, OptDirection: true, Direction: expr.CtDirOriginal}, value)
	}
	out := slices.Concat(equal(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, []byte{expr.CtDirReply}),
		original(expr.CtKeyPROTOCOL, []byte{byte(m.Protocol)}),
		original(expr.CtKeyDST, m.Frontend.Addr().AsSlice()),
		original(expr.CtKeyPROTODST, encodePort(m.Frontend.Port())),
		compareBits(&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}, binary.NativeEndian.AppendUint32(nil, statusAssured), make([]byte, 4), expr.CmpOpEq))
	if m.Client.IsValid() {
		out = append(out, original(expr.CtKeySRC, m.Client.AsSlice())...)
	}
	return out
}
