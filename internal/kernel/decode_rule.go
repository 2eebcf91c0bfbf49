package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// decodeRule returns the rule in a message, and the table and chain it is in.
// What we never write becomes [render.Foreign].
func decodeRule(m netlink.Message, f model.Family) (rule nft.Rule, table, chain string, err error) {
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_RULE_TABLE:
			table = string(a.Text())
		case unix.NFTA_RULE_CHAIN:
			chain = string(a.Text())
		case unix.NFTA_RULE_EXPRESSIONS:
			rule = decodeExpressions(a.Nested(), f)
		}
	}
	return rule, table, chain, err
}

func decodeExpressions(list netlinkio.Attributes, f model.Family) nft.Rule {
	s := symbolic{family: f, registers: make(map[int]nft.Operand)}
	for list.Next() {
		var name string
		a := list.Nested()
		for a.Next() {
			switch a.Type {
			case unix.NFTA_EXPR_NAME:
				name = string(a.Text())
			case unix.NFTA_EXPR_DATA:
				s.next(name, a.Data)
			}
		}
	}
	return s.finish()
}

// symbolic executes the bytecode of a rule with operands in place of values,
// and collects the statements that come out.
type symbolic struct {
	family    model.Family
	registers map[int]nft.Operand // by 32-bit register
	mask      []byte              // of a bitwise expression under way
	lookup    *nft.DNAT           // a lookup whose data nobody used yet
	rule      nft.Rule
}

var errForeign = errors.New("not an expression of ours")

// next executes one expression.
func (s *symbolic) next(name string, data []byte) {
	if err := s.execute(name, data); err != nil {
		s.emit(nft.Foreign{Description: fmt.Sprintf("%s (%v)", name, err)})
	}
}

func (s *symbolic) finish() nft.Rule {
	if s.lookup != nil || len(s.registers) > 0 {
		s.emit(nft.Foreign{Description: "a value that is not used"})
	}
	return s.rule
}

// emit appends a statement, which used what the registers held.
func (s *symbolic) emit(st nft.Statement) {
	s.rule = append(s.rule, st)
	clear(s.registers)
	s.mask, s.lookup = nil, nil
}

func (s *symbolic) execute(name string, data []byte) error {
	switch name {
	case "payload", "meta", "ct", "fib":
		return s.load(name, data)
	case "numgen", "hash":
		return s.slots(name, data)
	case "byteorder":
		return s.byteOrder(data)
	case "bitwise":
		return s.bitwise(data)
	case "cmp":
		return s.compare(data)
	case "lookup":
		return s.lookUp(data)
	case "dynset":
		return s.dynset(data)
	case "nat":
		return s.nat(data)
	case "masq":
		return s.fixed(data, &expr.Masq{}, nft.Masquerade{})
	case "reject":
		return s.fixed(data, &expr.Reject{}, nft.Refuse{}, nft.Reset{})
	case "immediate":
		return s.verdict(data)
	}
	return errForeign
}

// unmarshal decodes an expression of the google/nftables library.
func (s *symbolic) unmarshal(data []byte, e expr.Any) error {
	return expr.Unmarshal(familyNumber(s.family), data, e)
}

func (s *symbolic) bitwise(data []byte) error {
	e := &expr.Bitwise{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if registerIndex(e.SourceRegister) != 0 || registerIndex(e.DestRegister) != 0 || len(bytes.Trim(e.Xor, "\x00")) > 0 {
		return errForeign
	}
	if o, ok := s.registers[0].(nft.Field); ok && bytes.Equal(e.Mask, make([]byte, width(nft.Address, s.family))) {
		if any, ok := o.Any(); ok {
			s.registers[0] = any
			return nil
		}
	}
	s.mask = e.Mask
	return nil
}

func (s *symbolic) compare(data []byte) error {
	e := &expr.Cmp{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if registerIndex(e.Register) != 0 {
		return errForeign
	}
	st, err := s.comparison(e)
	if err != nil {
		return err
	}
	s.emit(st)
	return nil
}

// comparison returns the statement that ends with a comparison of the first
// register.
func (s *symbolic) comparison(e *expr.Cmp) (nft.Statement, error) {
	equal, unequal := e.Op == expr.CmpOpEq, e.Op == expr.CmpOpNeq
	zero := bytes.Equal(e.Data, make([]byte, 4))
	switch o := s.registers[0]; {
	case oneIn(o).Of > 0 && equal && zero && s.mask == nil:
		return oneIn(o), nil
	case o == nft.TransportProtocol && equal && s.mask == nil && len(e.Data) == 1:
		return nft.ProtocolIs{Protocol: model.Protocol(e.Data[0])}, nil
	case o == nft.SourceAddress && unequal:
		p, err := prefixOf(e.Data, s.mask, s.family)
		return nft.SourceNotIn{Prefix: p}, err
	case o == sourceType && equal && bytes.Equal(e.Data, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)):
		return nft.SourceIsLocal{}, nil
	case o == inputInterface && unequal && s.mask == nil:
		return interfaceOf(e.Data), nil
	case o == outputInterface && unequal && s.mask == nil:
		return nft.NotTo(interfaceOf(e.Data)), nil
	case o == connectionDirection && equal && s.mask == nil && bytes.Equal(e.Data, []byte{directionReply}):
		return nft.IsAnswer{}, nil
	case o == connectionStatus && s.maskIs(statusDNAT) && zero && equal:
		return nft.NotTranslated{}, nil
	case o == inputIndex && unequal && s.mask == nil && zero:
		return nft.CameIn{}, nil
	}
	return nil, errForeign
}

// interfaceOf returns the name with which that of an interface was compared.
func interfaceOf(data []byte) nft.NotFrom {
	return nft.NotFrom{Name: string(bytes.TrimRight(data, "\x00")), ByPrefix: len(data) < unix.IFNAMSIZ}
}

// oneIn returns the statement that compares a number with zero, or nothing.
func oneIn(o nft.Operand) nft.OneIn {
	n, _ := o.(nft.Slots)
	if one := (nft.OneIn{Of: n.Count}); n == one.Number() {
		return one
	}
	return nft.OneIn{}
}

func (s *symbolic) maskIs(bits uint32) bool {
	return bytes.Equal(s.mask, binary.NativeEndian.AppendUint32(nil, bits))
}

// prefixOf returns the prefix with which an address was compared: under a
// mask, or by its first bytes alone.
func prefixOf(data, mask []byte, f model.Family) (netip.Prefix, error) {
	address := make([]byte, width(nft.Address, f))
	bits := copy(address, data) * 8
	for i, b := range mask {
		if b != 0xff {
			bits = i * 8
			for ; b&0x80 != 0; b <<= 1 {
				bits++
			}
			break
		}
	}
	a, _ := netip.AddrFromSlice(address) // 4 or 16 bytes by width
	p := netip.PrefixFrom(a, bits)
	if mask != nil && !bytes.Equal(mask, maskOf(bits, len(mask))) || p.Masked() != p {
		return netip.Prefix{}, errForeign
	}
	return p, nil
}

// key collects the operands that were loaded side by side, from one register
// up to another.
func (s *symbolic) key(i, end int) nft.Concat {
	var key nft.Concat
	for i < end && s.registers[i] != nil {
		o := s.registers[i]
		key = append(key, o)
		i += width(o.Datatype(), s.family) / 4
	}
	return key
}

// allRegisters is the number of 32-bit registers.
const allRegisters = 16

// dynset decodes [render.Remember] and [render.Forget].
func (s *symbolic) dynset(data []byte) error {
	e := &expr.Dynset{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	at := registerIndex(e.SrcRegData)
	endpoint := s.key(at, allRegisters)
	if registerIndex(e.SrcRegKey) != 0 || e.Invert || len(e.Exprs) > 0 ||
		endpoint.Text(s.family) != nft.RememberedEndpoint.Text(s.family) {
		return errForeign
	}
	key := s.key(0, at)
	switch {
	case e.Operation == unix.NFT_DYNSET_OP_UPDATE:
		s.emit(nft.Remember{Map: e.SetName, Key: key, Timeout: e.Timeout})
	case e.Operation == dynsetDelete && e.Timeout == 0:
		s.emit(nft.Forget{Map: e.SetName, Key: key})
	default:
		return errForeign
	}
	return nil
}

func (s *symbolic) lookUp(data []byte) error {
	e := &expr.Lookup{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	key := s.key(0, allRegisters)
	if registerIndex(e.SourceRegister) != 0 || len(key) == 0 || e.Invert && e.IsDestRegSet || s.mask != nil {
		return errForeign
	}
	switch {
	case !e.IsDestRegSet:
		s.emit(nft.InSet{Key: key, Set: e.SetName, Not: e.Invert})
	case e.DestRegister == unix.NFT_REG_VERDICT:
		s.emit(nft.VerdictMap{Key: key, Map: e.SetName})
	case registerIndex(e.DestRegister) == 0:
		s.lookup = &nft.DNAT{Key: key, Map: e.SetName}
	default:
		return errForeign
	}
	return nil
}

func (s *symbolic) nat(data []byte) error {
	e := &expr.NAT{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	own := dnat(s.family)
	own.Specified = e.Specified // the kernel adds this flag wherever a port is given
	if s.lookup == nil || *e != *withoutRanges(own, e) {
		return errForeign
	}
	s.emit(*s.lookup)
	return nil
}

// withoutRanges returns own with the upper bounds of e where they say nothing
// new: the kernel repeats the lower ones in listings.
func withoutRanges(own, e *expr.NAT) *expr.NAT {
	if e.RegAddrMax == e.RegAddrMin {
		own.RegAddrMax = e.RegAddrMax
	}
	if e.RegProtoMax == e.RegProtoMin {
		own.RegProtoMax = e.RegProtoMax
	}
	return own
}

// fixed decodes an expression that is one of a few statements as a whole.
func (s *symbolic) fixed(data []byte, e expr.Any, statements ...nft.Statement) error {
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	for _, st := range statements {
		own, err := expressions(st, s.family)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(own[0], e) {
			s.emit(st)
			return nil
		}
	}
	return errForeign
}

// verdict decodes a verdict that stands in the rule. The library would panic on a
// broken one.
func (s *symbolic) verdict(data []byte) (err error) {
	var register uint32
	var value netlinkio.Attributes
	a := netlinkio.Read(data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_IMMEDIATE_DREG:
			register = a.Uint32()
		case unix.NFTA_IMMEDIATE_DATA:
			value = a.Nested()
		}
	}
	if err == nil && register != unix.NFT_REG_VERDICT {
		return errForeign
	}
	var v nft.Value
	newElementDecoder(nil, s.family).value(value, &v)
	if err != nil {
		return err
	}
	if v.Verdict.Action == nft.NoAction {
		return errForeign
	}
	s.emit(v.Verdict)
	return nil
}
