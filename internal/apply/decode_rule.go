package apply

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
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// decodeRule returns the rule in a message, and the table and chain it is in.
// What we never write becomes [render.Foreign].
func decodeRule(m netlink.Message, f model.Family) (rule render.Rule, table, chain string, err error) {
	ad, err := attributesOf(m)
	if err != nil {
		return nil, "", "", err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE:
			table = ad.String()
		case unix.NFTA_RULE_CHAIN:
			chain = ad.String()
		case unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				rule, err = decodeExpressions(list, f)
				return err
			})
		}
	}
	return rule, table, chain, ad.Err()
}

func decodeExpressions(list *netlink.AttributeDecoder, f model.Family) (render.Rule, error) {
	s := symbolic{family: f, registers: make(map[int]render.Operand)}
	for list.Next() {
		list.Nested(func(ad *netlink.AttributeDecoder) error {
			var name string
			for ad.Next() {
				switch ad.Type() {
				case unix.NFTA_EXPR_NAME:
					name = ad.String()
				case unix.NFTA_EXPR_DATA:
					s.next(name, ad.Bytes())
				}
			}
			return ad.Err()
		})
	}
	return s.finish(), list.Err()
}

// symbolic executes the bytecode of a rule with operands in place of values,
// and collects the statements that come out.
type symbolic struct {
	family    model.Family
	registers map[int]render.Operand // by 32-bit register
	mask      []byte                 // of a bitwise expression under way
	lookup    *render.DNAT           // a lookup whose data nobody used yet
	rule      render.Rule
}

var errForeign = errors.New("not an expression of ours")

// next executes one expression.
func (s *symbolic) next(name string, data []byte) {
	if err := s.execute(name, data); err != nil {
		s.emit(render.Foreign{Description: fmt.Sprintf("%s (%v)", name, err)})
	}
}

func (s *symbolic) finish() render.Rule {
	if s.lookup != nil || len(s.registers) > 0 {
		s.emit(render.Foreign{Description: "a value that is not used"})
	}
	return s.rule
}

// emit appends a statement, which used what the registers held.
func (s *symbolic) emit(st render.Statement) {
	s.rule = append(s.rule, st)
	clear(s.registers)
	s.mask, s.lookup = nil, nil
}

func (s *symbolic) execute(name string, data []byte) error {
	switch name {
	case "payload", "meta", "ct", "numgen":
		return s.load(name, data)
	case "bitwise":
		return s.bitwise(data)
	case "cmp":
		return s.compare(data)
	case "lookup":
		return s.lookUp(data)
	case "nat":
		return s.nat(data)
	case "masq":
		return s.fixed(data, &expr.Masq{}, render.Masquerade{})
	case "reject":
		return s.fixed(data, &expr.Reject{}, render.Refuse{}, render.Reset{})
	case "immediate":
		return s.verdict(data)
	}
	return errForeign
}

// unmarshal decodes an expression of the google/nftables library.
func (s *symbolic) unmarshal(data []byte, e expr.Any) error {
	family := byte(unix.NFPROTO_IPV4)
	if s.family == model.IPv6 {
		family = unix.NFPROTO_IPV6
	}
	return expr.Unmarshal(family, data, e)
}

// load puts an operand into a register. A source address may be loaded in
// part: nft does so for a prefix that ends on a byte boundary.
func (s *symbolic) load(name string, data []byte) error {
	switch name {
	case "payload":
		e := &expr.Payload{}
		if err := s.unmarshal(data, e); err != nil {
			return err
		}
		return s.set(e.DestRegister, func(o render.Operand) bool {
			own, ok := load(o, s.family, 0).(*expr.Payload)
			short := o == render.SourceAddress && e.Len < own.Len
			return ok && e.Base == own.Base && e.Offset == own.Offset && (e.Len == own.Len || short)
		})
	case "meta":
		e := &expr.Meta{}
		if err := s.unmarshal(data, e); err != nil {
			return err
		}
		return s.set(e.Register, func(o render.Operand) bool {
			own, ok := load(o, s.family, 0).(*expr.Meta)
			return ok && e.Key == own.Key && !e.SourceRegister
		})
	case "ct":
		e := &expr.Ct{}
		if err := s.unmarshal(data, e); err != nil {
			return err
		}
		if e.Key == expr.CtKeySTATUS && !e.SourceRegister {
			s.registers[registerIndex(e.Register)] = connectionStatus{}
			return nil
		}
		return s.set(e.Register, func(o render.Operand) bool {
			own, ok := load(o, s.family, 0).(*expr.Ct)
			return ok && e.Key == own.Key && e.Direction == own.Direction && !e.SourceRegister
		})
	}
	e := &expr.Numgen{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if e.Type != unix.NFT_NG_INCREMENTAL || e.Offset != 0 {
		return errForeign
	}
	s.registers[registerIndex(e.Register)] = render.Numgen{Modulus: e.Modulus}
	return nil
}

// connectionStatus is the operand of [render.NotTranslated]; it is in no key.
type connectionStatus struct{}

func (connectionStatus) Text(model.Family) string  { return "ct status" }
func (connectionStatus) Datatype() render.Datatype { return render.Slot }

// set records the field that is loaded like the expression at hand.
func (s *symbolic) set(r uint32, same func(render.Operand) bool) error {
	for o := render.SourceAddress; o <= render.OriginalPort; o++ {
		if same(o) {
			s.registers[registerIndex(r)] = o
			return nil
		}
	}
	return errForeign
}

func (s *symbolic) bitwise(data []byte) error {
	e := &expr.Bitwise{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if registerIndex(e.SourceRegister) != 0 || registerIndex(e.DestRegister) != 0 || len(bytes.Trim(e.Xor, "\x00")) > 0 {
		return errForeign
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
	switch o := s.registers[0]; {
	case o == render.TransportProtocol && e.Op == expr.CmpOpEq && s.mask == nil && len(e.Data) == 1:
		s.emit(render.ProtocolIs{Protocol: model.Protocol(e.Data[0])})
	case o == render.SourceAddress && e.Op == expr.CmpOpNeq:
		p, err := prefixOf(e.Data, s.mask, s.family)
		if err != nil {
			return err
		}
		s.emit(render.SourceNotIn{Prefix: p})
	case o == connectionStatus{} && e.Op == expr.CmpOpEq && bytes.Equal(e.Data, make([]byte, 4)) &&
		bytes.Equal(s.mask, binary.NativeEndian.AppendUint32(nil, statusDNAT)):
		s.emit(render.NotTranslated{})
	default:
		return errForeign
	}
	return nil
}

// prefixOf returns the prefix with which an address was compared: under a
// mask, or by its first bytes alone.
func prefixOf(data, mask []byte, f model.Family) (netip.Prefix, error) {
	address := make([]byte, width(render.Address, f))
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

// key collects the operands that were loaded side by side.
func (s *symbolic) key() render.Concat {
	var key render.Concat
	i := 0
	for s.registers[i] != nil {
		o := s.registers[i]
		key = append(key, o)
		i += width(o.Datatype(), s.family) / 4
	}
	return key
}

func (s *symbolic) lookUp(data []byte) error {
	e := &expr.Lookup{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	key := s.key()
	if registerIndex(e.SourceRegister) != 0 || len(key) == 0 || e.Invert || s.mask != nil {
		return errForeign
	}
	switch {
	case !e.IsDestRegSet:
		s.emit(render.InSet{Key: key, Set: e.SetName})
	case e.DestRegister == unix.NFT_REG_VERDICT:
		s.emit(render.VerdictMap{Key: key, Map: e.SetName})
	case registerIndex(e.DestRegister) == 0:
		s.lookup = &render.DNAT{Key: key, Map: e.SetName}
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
func (s *symbolic) fixed(data []byte, e expr.Any, statements ...render.Statement) error {
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

func (s *symbolic) verdict(data []byte) error {
	imm := &expr.Immediate{}
	if err := s.unmarshal(data, imm); err != nil {
		return err
	}
	if imm.Register != unix.NFT_REG_VERDICT {
		return errForeign
	}
	e := &expr.Verdict{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	action := actionOf(int32(e.Kind))
	if action == render.NoAction {
		return errForeign
	}
	s.emit(render.Verdict{Action: action, Chain: e.Chain})
	return nil
}
