package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Numbers of the kernel, from linux/netfilter/nf_tables.h where nothing else is
// said.
const (
	statusConfirmed = 1 << 3 // IPS_CONFIRMED of linux/netfilter/nf_conntrack_common.h
	statusDNAT      = 1 << 5 // IPS_DST_NAT of the same
	directionReply  = 1      // IP_CT_DIR_REPLY of linux/netfilter/nf_conntrack_tuple_common.h
	dynsetDelete    = 2      // NFT_DYNSET_OP_DELETE, since kernel 5.3

	rejectICMPUnreachable = 0 // NFT_REJECT_ICMP_UNREACH
	rejectTCPReset        = 1 // NFT_REJECT_TCP_RST
	icmpPortUnreachable   = 3
	icmp6PortUnreachable  = 4

	tcpFin   = 1 << 0
	tcpReset = 1 << 2

	icmpEchoRequest  = 8   // ICMP_ECHO of linux/icmp.h
	icmp6EchoRequest = 128 // ICMPV6_ECHO_REQUEST of linux/icmpv6.h
)

func appendStatement(a *Attributes, s nft.Statement, f model.Family) error {
	exprs := expressionsOf(s, f)
	if exprs == nil {
		return fmt.Errorf("no bytecode for %q", s.Text(f))
	}
	for _, x := range exprs {
		data, err := expr.Marshal(FamilyNumber(f), x)
		if err != nil {
			return fmt.Errorf("marshal %s: %w", s.Text(f), err)
		}
		end := a.Nest(unix.NFTA_LIST_ELEM)
		*a = append(*a, data...)
		end()
	}
	return nil
}

// expressionsOf returns the kernel's bytecode for a statement, as nft writes it
// (nft --debug=netlink), or nil if there is none. Operands are loaded into the
// 32-bit registers from the first one on.
func expressionsOf(s nft.Statement, f model.Family) []expr.Any {
	if c, ok := comparisonOf(s, f); ok {
		return c.expressions(f)
	}
	if out := usingSet(s, f); out != nil {
		return out
	}
	return actionExpressions(s, f)
}

// comparison is a statement that ends the rule for packets that differ from a constant.
type comparison struct {
	protocol model.Protocol // that is matched first; zero: none
	operand  nft.Operand
	mask     []byte
	op       expr.CmpOp
	data     []byte
}

// plainMatches are the comparisons of statements without parameters, for example of [nft.EndsTCP]
//
//	[ meta load l4proto => reg 1 ]
//	[ cmp eq reg 1 0x00000006 ]
//	[ payload load 1b @ transport header + 13 => reg 1 ]
//	[ bitwise reg 1 = ( reg 1 & 0x00000005 ) ^ 0x00000000 ]
//	[ cmp neq reg 1 0x00000000 ]
var plainMatches = [...]comparison{
	nft.NotTranslated:       {0, connectionStatus, hostOrder(statusDNAT), expr.CmpOpEq, hostOrder(0)},
	nft.Known:               {0, connectionStatus, hostOrder(statusConfirmed), expr.CmpOpNeq, hostOrder(0)},
	nft.IsAnswer:            {0, connectionDirection, nil, expr.CmpOpEq, []byte{directionReply}},
	nft.EndsTCP:             {model.TCP, tcpFlags, []byte{tcpFin | tcpReset}, expr.CmpOpNeq, []byte{0}},
	nft.ResetsTCP:           {model.TCP, tcpFlags, []byte{tcpReset}, expr.CmpOpNeq, []byte{0}},
	nft.SourceIsLocal:       {0, sourceType, nil, expr.CmpOpEq, hostOrder(unix.RTN_LOCAL)},
	nft.DestinationNotLocal: {0, destinationType, nil, expr.CmpOpNeq, hostOrder(unix.RTN_LOCAL)},
	nft.CameIn:              {0, inputIndex, nil, expr.CmpOpNeq, hostOrder(0)},
}

// comparisonOf returns the comparison of a statement; false: it is none.
func comparisonOf(s nft.Statement, f model.Family) (c comparison, ok bool) {
	const equal, unequal = expr.CmpOpEq, expr.CmpOpNeq
	switch s := s.(type) {
	case nft.ProtocolIs:
		c = comparison{0, nft.TransportProtocol, nil, equal, []byte{byte(s.Protocol)}}
	case nft.Plain:
		if int(s) < len(plainMatches) {
			c = plainMatches[s]
		}
		if s == nft.IsEchoRequest {
			c = comparison{model.EchoProtocol(f), icmpType, nil, equal, []byte{byFamily[byte](f, icmpEchoRequest, icmp6EchoRequest)}}
		}
	case nft.ToPort:
		c = comparison{model.TCP, nft.DestinationPort, nil, equal, binary.BigEndian.AppendUint16(nil, s.Port)}
	case nft.NotClass:
		c = comparison{0, nft.PacketClass, nil, unequal, hostOrder(uint32(s.Class))}
	case nft.NotFrom:
		c = comparison{0, inputInterface, nil, unequal, interfaceName(s)}
	case nft.NotTo:
		c = comparison{0, outputInterface, nil, unequal, interfaceName(nft.NotFrom(s))}
	case nft.OneIn:
		c = comparison{0, s.Number(), nil, equal, hostOrder(0)}
	case nft.SourceNotIn:
		c = sourceNotIn(s)
	}
	return c, c.operand != nil
}

func (c comparison) expressions(f model.Family) (out []expr.Any) {
	if c.protocol != 0 {
		out = expressionsOf(nft.ProtocolIs{Protocol: c.protocol}, f)
	}
	if slots, ok := c.operand.(nft.Slots); ok {
		out = slotExpressions(slots, f, 0)
	} else {
		out = append(out, load(c.operand, f, 0))
	}
	if source, ok := out[len(out)-1].(*expr.Payload); ok && c.operand == nft.SourceAddress {
		source.Len = uint32(len(c.data))
	}
	if c.mask != nil {
		out = append(out, bitwiseFirst(c.mask))
	}
	return append(out, &expr.Cmp{Op: c.op, Register: registerNumber(0), Data: c.data})
}

func usingSet(s nft.Statement, f model.Family) []expr.Any {
	switch s := s.(type) {
	case nft.InSet:
		return append(loadKey(s.Key, f, 0), &expr.Lookup{SourceRegister: registerNumber(0), SetName: s.Set, Invert: s.Not})
	case nft.VerdictMap:
		return append(loadKey(s.Key, f, 0), &expr.Lookup{
			SourceRegister: registerNumber(0), SetName: s.Map, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
		})
	case nft.Classify:
		// [ lookup reg 1 set services dreg 1 ]
		// [ meta set priority with reg 1 ]
		return append(loadKey(s.Key, f, 0),
			&expr.Lookup{SourceRegister: registerNumber(0), SetName: s.Map, DestRegister: registerNumber(0), IsDestRegSet: true},
			setPriority())
	case nft.DNAT:
		// [ lookup reg 1 set endpoints dreg 1 ]
		// [ nat dnat ip addr_min reg 1 proto_min reg 9 ]
		return append(loadKey(s.Key, f, 0),
			&expr.Lookup{SourceRegister: registerNumber(0), SetName: s.Map, DestRegister: registerNumber(0), IsDestRegSet: true},
			dnatExpression(f, s.KeepPort))
	case nft.Update:
		return updateExpressions(s, f)
	}
	return nil
}

// actionExpressions returns the bytecode of a statement that chooses an endpoint, translates or logs a packet, or ends
// the rules for it.
func actionExpressions(s nft.Statement, f model.Family) []expr.Any {
	switch s := s.(type) {
	case nft.Within:
		return []expr.Any{rateExpr(s.Rate, false)}
	case nft.Choose:
		return append(slotExpressions(s.Slots, f, 0), setPriority())
	case nft.Plain:
		return plainExpressions(s, f)
	case nft.DNATTo:
		// [ immediate reg 1 0x010200c0 ]
		// [ nat dnat ip addr_min reg 1 ]
		return []expr.Any{&expr.Immediate{Register: registerNumber(0), Data: s.Address.AsSlice()}, dnatExpression(f, true)}
	case nft.Log:
		return []expr.Any{log(s)}
	case nft.SNATTo:
		// [ immediate reg 1 0x010200c0 ]
		// [ nat snat ip addr_min reg 1 flags 0x10 ]
		return []expr.Any{&expr.Immediate{Register: registerNumber(0), Data: s.Address.AsSlice()}, snatExpression(f)}
	case nft.Redirect:
		// [ immediate reg 1 0x00000528 ]
		// [ redir proto_min reg 1 flags 0x2 ]
		return []expr.Any{&expr.Immediate{Register: registerNumber(0), Data: binary.BigEndian.AppendUint16(nil, s.Port)}, redirectExpression()}
	case nft.Verdict:
		return []expr.Any{&expr.Verdict{Kind: verdictCodes[s.Action], Chain: s.Chain}}
	}
	return nil
}

func plainExpressions(s nft.Plain, f model.Family) []expr.Any {
	switch s {
	case nft.Declassify:
		return []expr.Any{&expr.Immediate{Register: registerNumber(0), Data: hostOrder(0)}, setPriority()}
	case nft.Masquerade:
		return []expr.Any{&expr.Masq{FullyRandom: true}}
	case nft.Refuse:
		return []expr.Any{&expr.Reject{Type: rejectICMPUnreachable, Code: byFamily[uint8](f, icmpPortUnreachable, icmp6PortUnreachable)}}
	case nft.Reset:
		return []expr.Any{&expr.Reject{Type: rejectTCPReset}}
	}
	return nil
}

// redirectExpression takes the port from the first register. The kernel sets the flag wherever a port is
// given, and lists the port as the end of a range, too.
func redirectExpression() *expr.Redir {
	return &expr.Redir{RegisterProtoMin: registerNumber(0), RegisterProtoMax: registerNumber(0), Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}
}

func setPriority() *expr.Meta {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: registerNumber(0)}
}

func bitwiseFirst(mask []byte) expr.Any { return bitwiseAt(mask, 0) }

// bitwiseAt masks what begins in the i-th register.
func bitwiseAt(mask []byte, i int) expr.Any {
	return &expr.Bitwise{
		SourceRegister: registerNumber(i), DestRegister: registerNumber(i),
		Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
	}
}

func hostOrder(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func loadKey(key nft.Concat, f model.Family, i int) []expr.Any {
	var out []expr.Any
	for _, o := range key {
		if s, ok := o.(nft.Slots); ok { // it comes last
			return append(out, slotExpressions(s, f, i)...)
		}
		if n, ok := o.(nft.SourceNetwork); ok {
			// [ payload load 4b @ network header + 12 => reg 11 ]
			// [ bitwise reg 11 = ( reg 11 & 0x00ffffff ) ^ 0x00000000 ]
			out = append(out, load(nft.SourceAddress, f, i), bitwiseAt(maskOf(int(n.Bits), widthOf(nft.Source, f)), i))
			i += countRegisters(o, f)
			continue
		}
		field := o.(nft.Field)
		out = append(out, load(field.Loaded(), f, i))
		if field == nft.PacketGroup {
			// [ bitwise reg 2 = ( reg 2 & 0xffffc000 ) ^ 0x00000000 ]
			out = append(out, bitwiseAt(hostOrder(uint32(nft.GroupMask())), i))
		} else if field != field.Loaded() { // it comes first in every key
			// [ bitwise reg 1 = ( reg 1 & 0x00000000 ) ^ 0x00000000 ]
			out = append(out, bitwiseFirst(make([]byte, widthOf(o.Datatype(), f))))
		}
		i += countRegisters(o, f)
	}
	return out
}

func countRegisters(o nft.Operand, f model.Family) int { return widthOf(o.Datatype(), f) / 4 }

// operations are the kernel's numbers of what a statement does to an element; deletions came with kernel 5.3.
var operations = map[string]uint32{"add": unix.NFT_DYNSET_OP_ADD, "update": unix.NFT_DYNSET_OP_UPDATE, "delete": dynsetDelete}

// updateExpressions loads the key and, right behind it, the data: for IPv6 a client and its endpoint
// fill 15 of the 16 registers. Several expressions in an element need kernel 5.11.
//
//	[ dynset update reg_key 1 set affinity sreg_data 2 timeout 10800000ms ]
//	[ dynset add reg_key 1 set clients expr [ connlimit count 10 flags 1 ] ]
//	[ dynset update reg_key 1 set refused-denied expr [ counter pkts 0 bytes 0 ] expr [ limit rate 10/second burst 10 type packets flags 0x0 ] ]
func updateExpressions(u nft.Update, f model.Family) []expr.Any {
	e := &expr.Dynset{SrcRegKey: registerNumber(0), SetName: u.Set, Operation: operations[u.Op], Timeout: u.Timeout}
	out := loadKey(u.Key, f, 0)
	if u.Data != nil {
		data := int(keyLength(u.Key, f)) / 4
		out, e.SrcRegData = append(out, loadKey(u.Data, f, data)...), registerNumber(data)
	}
	switch {
	case u.Counts:
		e.Exprs = []expr.Any{&expr.Counter{}, rateExpr(u.Limit.Rate, false)}
	case u.Limit != nft.Limit{}:
		e.Exprs = []expr.Any{limitExpr(u.Limit)}
	}
	return append(out, e)
}

// interfaceName returns the bytes with which the name of an interface is
// compared: all of them, or those of the prefix.
func interfaceName(s nft.NotFrom) []byte {
	name := []byte(s.Name)
	if !s.ByPrefix {
		name = append(name, make([]byte, unix.IFNAMSIZ)...)
	}
	return name[:min(len(name), unix.IFNAMSIZ)]
}

// sourceNotIn compares the source address under the prefix's mask.
//
//	[ payload load 4b @ network header + 12 => reg 1 ]
//	[ bitwise reg 1 = ( reg 1 & 0x000080ff ) ^ 0x00000000 ]
//	[ cmp neq reg 1 0x0000800a ]
//
// For a prefix that ends on a byte boundary only its bytes are loaded, as nft
// does: then no mask is needed.
func sourceNotIn(s nft.SourceNotIn) comparison {
	address, bits := s.Prefix.Masked().Addr().AsSlice(), s.Prefix.Bits()
	if bits%8 == 0 && bits > 0 {
		return comparison{0, nft.SourceAddress, nil, expr.CmpOpNeq, address[:bits/8]}
	}
	return comparison{0, nft.SourceAddress, maskOf(bits, len(address)), expr.CmpOpNeq, address}
}

func maskOf(bits, length int) []byte {
	m := make([]byte, length)
	for i := range bits {
		m[i/8] |= 1 << (7 - i%8)
	}
	return m
}

// dnatExpression takes address and port from the data that a lookup left in the first
// registers, or the address alone.
func dnatExpression(f model.Family, keepPort bool) *expr.NAT {
	n := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(FamilyNumber(f)), RegAddrMin: registerNumber(0)}
	if !keepPort {
		n.RegProtoMin = registerNumber(widthOf(nft.Address, f) / 4)
	}
	return n
}

func snatExpression(f model.Family) *expr.NAT {
	n := dnatExpression(f, true)
	n.Type, n.FullyRandom = expr.NATTypeSourceNAT, true
	return n
}

var verdictCodes = [...]expr.VerdictKind{
	nft.Accept: expr.VerdictAccept, nft.Drop: expr.VerdictDrop, nft.Goto: expr.VerdictGoto, nft.Jump: expr.VerdictJump,
	nft.Return: expr.VerdictReturn,
}
