package codec

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// matched is an operand that rules only compare: it is in no key.
type matched string

const (
	connectionStatus    matched = "ct status"
	connectionDirection matched = "ct direction"
	sourceType          matched = "fib saddr type"
	destinationType     matched = "fib daddr type"
	icmpType            matched = "icmp type"
	tcpFlags            matched = "tcp flags"
	inputInterface      matched = "iifname"
	inputIndex          matched = "iif"
	outputInterface     matched = "oifname"

	noClass matched = "none" // a constant
)

func (m matched) Text(model.Family) string { return string(m) }
func (m matched) Datatype() nft.Datatype   { return nft.ClassID }

// constant is an address in a rule.
type constant netip.Addr

func (c constant) Text(model.Family) string { return netip.Addr(c).String() }
func (c constant) Datatype() nft.Datatype   { return nft.Address }

// constantPort is a port in a rule.
type constantPort uint16

func (c constantPort) Text(model.Family) string { return strconv.Itoa(int(c)) }
func (c constantPort) Datatype() nft.Datatype   { return nft.Port }

// registerNumber returns the number of the i-th 32-bit register. Where a 128-bit
// register starts there, its number is used, as in the kernel's listings.
func registerNumber(i int) uint32 {
	if i%4 == 0 {
		return uint32(unix.NFT_REG_1 + i/4)
	}
	return uint32(unix.NFT_REG32_00 + i)
}

func registerIndex(r uint32) int {
	if r >= unix.NFT_REG32_00 {
		return int(r) - unix.NFT_REG32_00
	}
	return (int(r) - unix.NFT_REG_1) * 4
}

func byFamily[T any](f model.Family, ipv4, ipv6 T) T {
	if f == model.IPv6 {
		return ipv6
	}
	return ipv4
}

func sourceOffset(f model.Family) uint32 { return byFamily[uint32](f, 12, 8) }

// loading has the expression that loads each operand of a family, without its register.
// NFT_CT_SRC_IP and its like need kernel 4.17; the older NFT_CT_SRC has no fixed
// length.
var loading = map[model.Family]map[nft.Operand]any{model.IPv4: loadingOf(model.IPv4), model.IPv6: loadingOf(model.IPv6)}

func loadingOf(f model.Family) map[nft.Operand]any {
	const network, transport = expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	length := uint32(widthOf(nft.Address, f))
	source, destination := byFamily(f, expr.CtKeySRCIP, expr.CtKeySRCIP6), byFamily(f, expr.CtKeyDSTIP, expr.CtKeyDSTIP6)
	return map[nft.Operand]any{
		nft.SourceAddress:       expr.Payload{Base: network, Offset: sourceOffset(f), Len: length},
		nft.DestinationAddress:  expr.Payload{Base: network, Offset: sourceOffset(f) + length, Len: length},
		nft.TransportProtocol:   expr.Meta{Key: expr.MetaKeyL4PROTO},
		nft.SourcePort:          expr.Payload{Base: transport, Offset: 0, Len: 2},
		nft.DestinationPort:     expr.Payload{Base: transport, Offset: 2, Len: 2},
		nft.OriginalSource:      expr.Ct{Key: source, Direction: expr.CtDirOriginal},
		nft.OriginalDestination: expr.Ct{Key: destination, Direction: expr.CtDirOriginal},
		nft.OriginalPort:        expr.Ct{Key: expr.CtKeyPROTODST, Direction: expr.CtDirOriginal},
		nft.ReplySource:         expr.Ct{Key: source, Direction: expr.CtDirReply},
		nft.ReplyPort:           expr.Ct{Key: expr.CtKeyPROTOSRC, Direction: expr.CtDirReply},
		nft.OriginalClientPort:  expr.Ct{Key: expr.CtKeyPROTOSRC, Direction: expr.CtDirOriginal},
		nft.PacketClass:         expr.Meta{Key: expr.MetaKeyPRIORITY},
		connectionStatus:        expr.Ct{Key: expr.CtKeySTATUS},
		connectionDirection:     expr.Ct{Key: expr.CtKeyDIRECTION},
		sourceType:              expr.Fib{ResultADDRTYPE: true, FlagSADDR: true},
		destinationType:         expr.Fib{ResultADDRTYPE: true, FlagDADDR: true},
		icmpType:                expr.Payload{Base: transport, Offset: 0, Len: 1},
		tcpFlags:                expr.Payload{Base: transport, Offset: 13, Len: 1},
		inputInterface:          expr.Meta{Key: expr.MetaKeyIIFNAME},
		inputIndex:              expr.Meta{Key: expr.MetaKeyIIF},
		outputInterface:         expr.Meta{Key: expr.MetaKeyOIFNAME},
	}
}

// load returns the expression that loads an operand into the i-th register.
func load(o nft.Operand, f model.Family, i int) expr.Any {
	switch e := loading[f][o].(type) {
	case expr.Payload:
		e.DestRegister = registerNumber(i)
		return &e
	case expr.Meta:
		e.Register = registerNumber(i)
		return &e
	case expr.Ct:
		e.Register = registerNumber(i)
		return &e
	case expr.Fib:
		e.Register = registerNumber(i)
		return &e
	}
	panic("no load of " + o.Text(f)) // which rules do not have
}

type loaded struct {
	operand  nft.Operand
	register int
}

// loads is the inverse of load, made when the first rule is decoded: most commands read
// none.
var loads = map[model.Family]func() map[any]loaded{
	model.IPv4: sync.OnceValue(func() map[any]loaded { return loadsOf(model.IPv4) }),
	model.IPv6: sync.OnceValue(func() map[any]loaded { return loadsOf(model.IPv6) }),
}

func loadsOf(f model.Family) map[any]loaded {
	out := make(map[any]loaded)
	for o := range loading[f] {
		for i := range allRegisters {
			out[reflect.ValueOf(load(o, f, i)).Elem().Interface()] = loaded{o, i}
		}
	}
	return out
}

func (s *symbolic) load(e any) error {
	l, ok := loads[s.family]()[e]
	if !ok {
		return errForeign
	}
	s.registers[l.register] = l.operand
	return nil
}

// decodePayload executes the load of a field. nft may load only the first bytes of
// a source address, for a prefix that ends on a byte boundary.
func (s *symbolic) decodePayload(e *expr.Payload) error {
	if e.Base == expr.PayloadBaseNetworkHeader && e.Offset == sourceOffset(s.family) {
		e.Len = max(e.Len, uint32(widthOf(nft.Source, s.family)))
	}
	return s.load(*e)
}

func (s *symbolic) decodeMeta(e *expr.Meta) error {
	if *e != *setPriority() {
		return s.load(*e)
	}
	slots, chooses := s.registers[0].(nft.Slots)
	switch {
	case s.lookup != nil:
		s.emit(nft.Classify{Key: s.lookup.Key, Map: s.lookup.Map})
	case chooses:
		s.emit(nft.Choose{Slots: slots})
	case s.registers[0] == noClass:
		s.emit(nft.Declassify)
	default:
		return errForeign
	}
	return nil
}

// slotExpressions returns the expressions that compute the number of a slot into the i-th
// register.
func slotExpressions(s nft.Slots, f model.Family, i int) []expr.Any {
	key, seed := s.Hash()
	if key == nil {
		kind := uint32(unix.NFT_NG_INCREMENTAL)
		if s.Scheduler == model.Random {
			kind = unix.NFT_NG_RANDOM
		}
		return []expr.Any{&expr.Numgen{Register: registerNumber(i), Modulus: s.Count, Type: kind, Offset: s.First}}
	}
	// [ payload load 4b @ network header + 12 => reg 2 ]
	// [ hash reg 1 = jhash(reg 2, 4, 0x6e667478) % mod 3 offset 1 ]
	input := i/4*4 + 4 // behind the register of the result
	return append(loadKey(key, f, input), &expr.Hash{
		SourceRegister: registerNumber(input), DestRegister: registerNumber(i), Length: keyLength(key, f),
		Modulus: s.Count, Seed: seed, Offset: s.First, Type: expr.HashTypeJenkins,
	})
}

func keyLength(key nft.Concat, f model.Family) (n uint32) {
	for _, o := range key {
		n += uint32(widthOf(o.Datatype(), f))
	}
	return n
}

func (s *symbolic) decodeNumgen(e *expr.Numgen) error {
	scheduler := model.RoundRobin
	if e.Type == unix.NFT_NG_RANDOM {
		scheduler = model.Random
	}
	s.registers[registerIndex(e.Register)] = nft.Slots{Scheduler: scheduler, Count: e.Modulus, First: e.Offset}
	return nil
}

func (s *symbolic) decodeHash(e *expr.Hash) error {
	from := registerIndex(e.SourceRegister)
	input := s.loadedKey(from, allRegisters)
	for _, scheduler := range []model.Scheduler{model.SourceHash, model.Maglev, model.MaglevPort} {
		slots := nft.Slots{Scheduler: scheduler, Count: e.Modulus, First: e.Offset}
		key, seed := slots.Hash()
		if e.Type != expr.HashTypeJenkins || e.Seed != seed || e.Length != keyLength(key, s.family) || !slices.Equal(input, key) {
			continue
		}
		for i := range int(e.Length) / 4 {
			delete(s.registers, from+i)
		}
		s.registers[registerIndex(e.DestRegister)] = slots
		return nil
	}
	return errForeign
}

// byteOrder accepts what nft 1.0.6 sometimes puts behind the protocol in the key
// of an interval set: it swaps the bytes of a single byte, which does nothing.
// (The library does not decode this expression.)
func (s *symbolic) byteOrder(data []byte) (err error) {
	var from, to uint32
	a := netlinkio.Read(data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_BYTEORDER_SREG:
			from = a.Uint32()
		case unix.NFTA_BYTEORDER_DREG:
			to = a.Uint32()
		}
	}
	if from != to || s.registers[registerIndex(from)] != nft.TransportProtocol {
		return errForeign
	}
	return err
}
