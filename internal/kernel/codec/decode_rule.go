package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// DecodeRule returns the rule in a message, and the table and chain it is in.
// What we never write becomes [nft.Foreign].
func DecodeRule(m netlink.Message, f model.Family) (rule nft.Rule, table, chain string, err error) {
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
	return s.finishRule()
}

// symbolic executes the bytecode of a rule with operands in place of values, and
// collects the statements that this yields.
type symbolic struct {
	family    model.Family
	registers map[int]nft.Operand // by 32-bit register
	mask      []byte              // of a bitwise expression under way
	lookup    *nft.DNAT           // a lookup whose data no expression has used yet
	rule      nft.Rule
}

var errForeign = errors.New("not an expression of ours")

func (s *symbolic) next(name string, data []byte) {
	err := errForeign
	if execute, ok := executors[name]; ok {
		err = execute(s, data)
	}
	if err != nil {
		s.emit(nft.Foreign{Description: fmt.Sprintf("%s (%v)", name, err)})
	}
}

func (s *symbolic) finishRule() nft.Rule {
	if s.lookup != nil || len(s.registers) > 0 {
		s.emit(nft.Foreign{Description: "a value that is not used"})
	}
	return s.rule
}

// emit appends a statement, which used up the registers.
func (s *symbolic) emit(st nft.Statement) {
	s.rule = append(s.rule, st)
	clear(s.registers)
	s.mask, s.lookup = nil, nil
}

// executors are by the name of the expression.
var executors = map[string]func(*symbolic, []byte) error{
	"payload": executor((*symbolic).decodePayload), "meta": executor((*symbolic).decodeMeta),
	"ct":     executor(func(s *symbolic, e *expr.Ct) error { return s.load(*e) }),
	"fib":    executor(func(s *symbolic, e *expr.Fib) error { return s.load(*e) }),
	"numgen": executor((*symbolic).decodeNumgen), "hash": executor((*symbolic).decodeHash), "byteorder": (*symbolic).byteOrder,
	"bitwise": executor((*symbolic).decodeBitwise), "cmp": executor((*symbolic).compare),
	"lookup": executor((*symbolic).lookUp), "dynset": executor((*symbolic).decodeDynset),
	"nat": executor((*symbolic).decodeNAT), "redir": executor((*symbolic).decodeRedirect),
	"masq":   executor(func(s *symbolic, e *expr.Masq) error { return s.oneOf(e, nft.Masquerade) }),
	"reject": executor(func(s *symbolic, e *expr.Reject) error { return s.oneOf(e, nft.Refuse, nft.Reset) }),
	"limit":  executor((*symbolic).decodeWithin), "log": (*symbolic).log, "immediate": (*symbolic).decodeImmediate,
}

// executor decodes an expression with the library and executes it.
func executor[E any, P interface {
	*E
	expr.Any
}](do func(*symbolic, P) error) func(*symbolic, []byte) error {
	return func(s *symbolic, data []byte) error {
		e := P(new(E))
		if err := unmarshal(FamilyNumber(s.family), data, e); err != nil {
			return err
		}
		return do(s, e)
	}
}

// unmarshal decodes an expression with the library, which takes for granted that values have their length.
func unmarshal(family byte, data []byte, e expr.Any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode expression: %v", p)
		}
	}()
	return expr.Unmarshal(family, data, e)
}

func (s *symbolic) decodeBitwise(e *expr.Bitwise) error {
	switch i := registerIndex(e.SourceRegister); {
	case i > 0 && s.registers[i] == nft.SourceAddress:
		return s.maskSource(e, i)
	case i > 0 && s.registers[i] == nft.PacketClass && reflect.DeepEqual(e, bitwiseAt(hostOrder(uint32(nft.GroupMask())), i)):
		s.registers[i] = nft.PacketGroup
		return nil
	}
	if registerIndex(e.SourceRegister) != 0 || registerIndex(e.DestRegister) != 0 || len(bytes.Trim(e.Xor, "\x00")) > 0 {
		return errForeign
	}
	if o, ok := s.registers[0].(nft.Field); ok && bytes.Equal(e.Mask, make([]byte, widthOf(nft.Address, s.family))) {
		if any, ok := o.Any(); ok {
			s.registers[0] = any
			return nil
		}
	}
	s.mask = e.Mask
	return nil
}

func (s *symbolic) maskSource(e *expr.Bitwise, i int) error {
	for bits := range widthOf(nft.Source, s.family) * 8 {
		if reflect.DeepEqual(e, bitwiseAt(maskOf(bits, widthOf(nft.Source, s.family)), i)) {
			s.registers[i] = nft.SourceNetwork{Bits: uint8(bits)}
			return nil
		}
	}
	return errForeign
}

func (s *symbolic) compare(e *expr.Cmp) error {
	if registerIndex(e.Register) != 0 {
		return errForeign
	}
	st, err := s.decodeComparison(e)
	if err != nil {
		return err
	}
	s.emit(st)
	return nil
}

// decodeComparison returns the statement that ends with a comparison of the first
// register: the one that has the same.
func (s *symbolic) decodeComparison(e *expr.Cmp) (nft.Statement, error) {
	operand := s.registers[0]
	if operand == nft.SourceAddress && e.Op == expr.CmpOpNeq {
		p, err := prefixOf(e.Data, s.mask, s.family)
		return nft.SourceNotIn{Prefix: p}, err
	}
	link := nft.NotFrom{Name: string(bytes.TrimRight(e.Data, "\x00")), ByPrefix: len(e.Data) < unix.IFNAMSIZ}
	candidates := []nft.Statement{link, nft.NotTo(link)}
	for p := range nft.CameIn + 1 {
		candidates = append(candidates, p)
	}
	switch len(e.Data) {
	case 1:
		candidates = append(candidates, nft.ProtocolIs{Protocol: model.Protocol(e.Data[0])})
	case 2:
		candidates = append(candidates, nft.ToPort{Port: binary.BigEndian.Uint16(e.Data)})
	case 4:
		candidates = append(candidates, nft.NotClass{Class: nft.Class(binary.NativeEndian.Uint32(e.Data))})
	}
	if n, ok := operand.(nft.Slots); ok {
		candidates = append(candidates, nft.OneIn{Of: n.Count, InTurn: n.Scheduler == model.RoundRobin})
	}
	for _, st := range candidates {
		c, _ := comparisonOf(st, s.family)
		if c.operand == operand && bytes.Equal(c.mask, s.mask) && c.op == e.Op && bytes.Equal(c.data, e.Data) && s.takeBack(c.protocol) {
			return st, nil
		}
	}
	return nil, errForeign
}

// takeBack removes the match of a protocol, with which the statement under way begins, and
// reports whether there is one, if there is to be one.
func (s *symbolic) takeBack(p model.Protocol) bool {
	last := len(s.rule) - 1
	if p != 0 && (last < 0 || s.rule[last] != nft.Statement(nft.ProtocolIs{Protocol: p})) {
		return false
	}
	if p != 0 {
		s.rule = s.rule[:last]
	}
	return true
}

// prefixOf returns the prefix with which an address was compared: under a
// mask, or by its first bytes.
func prefixOf(data, mask []byte, f model.Family) (netip.Prefix, error) {
	address := make([]byte, widthOf(nft.Address, f))
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

// loadedKey returns the operands that were loaded side by side, from one register up to
// another.
func (s *symbolic) loadedKey(i, end int) nft.Concat {
	var key nft.Concat
	for i < end && s.registers[i] != nil {
		o := s.registers[i]
		key = append(key, o)
		i += countRegisters(o, s.family)
	}
	return key
}

const allRegisters = 16

// decodeDynset decodes a change of an element, with expressions that we write.
func (s *symbolic) decodeDynset(e *expr.Dynset) error {
	at := allRegisters
	if e.SrcRegData != 0 {
		at = registerIndex(e.SrcRegData)
	}
	u := nft.Update{Set: e.SetName, Key: s.loadedKey(0, at), Timeout: e.Timeout, Data: s.loadedKey(at, allRegisters)}
	for op, number := range operations {
		if number == e.Operation {
			u.Op = op
		}
	}
	ours := u.Op != "" && len(u.Key) > 0 && registerIndex(e.SrcRegKey) == 0 && !e.Invert
	switch len(e.Exprs) {
	case 0:
		ours = ours && (len(u.Data) == 0 || slices.Equal(u.Data, nft.RememberedEndpoint) || slices.Equal(u.Data, nft.NotedClass))
	case 1:
		u.Limit = limitOf(e.Exprs[0])
		ours = ours && u.Limit != nft.Limit{}
	case 2:
		_, u.Counts = e.Exprs[0].(*expr.Counter)
		limit, limits := e.Exprs[1].(*expr.Limit)
		if ours = ours && u.Counts && limits; ours {
			u.Limit.Rate, ours = rateOf(limit, false)
		}
	default:
		ours = false
	}
	if !ours || len(e.Exprs) > 0 && len(u.Data) > 0 {
		return errForeign
	}
	s.emit(u)
	return nil
}

func (s *symbolic) lookUp(e *expr.Lookup) error {
	key := s.loadedKey(0, allRegisters)
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

func (s *symbolic) decodeNAT(e *expr.NAT) error {
	// Listings repeat the lower bounds of ranges as the upper ones, and set a flag wherever a port is given.
	if e.RegAddrMax == e.RegAddrMin {
		e.RegAddrMax = 0
	}
	if e.RegProtoMax == e.RegProtoMin {
		e.RegProtoMax = 0
	}
	e.Specified = e.Specified && e.RegProtoMin == 0
	keepPort := e.RegProtoMin == 0
	switch to, isConstant := s.registers[0].(constant); {
	case isConstant:
		return s.oneOf(e, nft.SNATTo{Address: netip.Addr(to)}, nft.DNATTo{Address: netip.Addr(to)})
	case s.lookup == nil || *e != *dnatExpression(s.family, keepPort):
		return errForeign
	}
	found := *s.lookup
	found.KeepPort = keepPort
	s.emit(found)
	return nil
}

func (s *symbolic) decodeRedirect(e *expr.Redir) error {
	port, ok := s.registers[0].(constantPort)
	if !ok {
		return errForeign
	}
	return s.oneOf(e, nft.Redirect{Port: uint16(port)})
}

// oneOf decodes the last expression of a statement, one of a few.
func (s *symbolic) oneOf(e expr.Any, statements ...nft.Statement) error {
	for _, st := range statements {
		if all := expressionsOf(st, s.family); reflect.DeepEqual(all[len(all)-1], e) {
			s.emit(st)
			return nil
		}
	}
	return errForeign
}

// decodeImmediate decodes a verdict in the rule, an address, a port, or no class. The library would
// panic on a broken one.
func (s *symbolic) decodeImmediate(data []byte) (err error) {
	var dreg uint32
	var value netlinkio.Attributes
	a := netlinkio.Read(data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_IMMEDIATE_DREG:
			dreg = a.Uint32()
		case unix.NFTA_IMMEDIATE_DATA:
			value = a.Nested()
		}
	}
	var bytes []byte
	var verdict nft.Verdict
	for value.Next() {
		switch value.Type {
		case unix.NFTA_DATA_VALUE:
			bytes = value.Data
		case unix.NFTA_DATA_VERDICT:
			verdict = NewElementDecoder(&nft.Set{}, s.family).decodeVerdict(value.Nested())
		}
	}
	switch {
	case err != nil:
		return err
	case dreg == unix.NFT_REG_VERDICT && verdict.Action != nft.NoAction && bytes == nil:
		s.emit(verdict)
	case dreg == registerNumber(0) && verdict == nft.Verdict{}:
		return s.loadConstant(bytes)
	default:
		return errForeign
	}
	return nil
}

// loadConstant puts a constant into the first register. No class is one of IPv4's size, and no
// address to send connections to.
func (s *symbolic) loadConstant(data []byte) error {
	address, ok := netip.AddrFromSlice(data)
	switch {
	case slices.Equal(data, hostOrder(0)):
		s.registers[0] = noClass
	case ok && len(data) == widthOf(nft.Address, s.family):
		s.registers[0] = constant(address)
	case len(data) == 2:
		s.registers[0] = constantPort(binary.BigEndian.Uint16(data))
	default:
		return errForeign
	}
	return nil
}
