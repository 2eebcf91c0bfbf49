package kernel

import (
	"github.com/google/nftables/expr"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// load puts an operand into a register. A source address may be loaded in
// part: nft does so for a prefix that ends on a byte boundary.
func (s *symbolic) load(name string, data []byte) error {
	switch name {
	case "payload":
		e := &expr.Payload{}
		if err := s.unmarshal(data, e); err != nil {
			return err
		}
		return s.set(e.DestRegister, func(o nft.Field) bool {
			own, ok := load(o, s.family, 0).(*expr.Payload)
			if !ok || e.Base != own.Base || e.Offset != own.Offset {
				return false
			}
			return e.Len == own.Len || o == nft.SourceAddress && e.Len < own.Len
		})
	case "meta":
		return s.loadMeta(data)
	case "ct":
		return s.loadConnection(data)
	}
	e := &expr.Fib{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if *e != (expr.Fib{Register: e.Register, ResultADDRTYPE: true, FlagSADDR: true}) {
		return errForeign
	}
	s.registers[registerIndex(e.Register)] = sourceType
	return nil
}

func (s *symbolic) loadMeta(data []byte) error {
	e := &expr.Meta{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if o, ok := matchedMeta[e.Key]; ok && !e.SourceRegister {
		s.registers[registerIndex(e.Register)] = o
		return nil
	}
	return s.set(e.Register, func(o nft.Field) bool {
		own, ok := load(o, s.family, 0).(*expr.Meta)
		return ok && e.Key == own.Key && !e.SourceRegister
	})
}

func (s *symbolic) loadConnection(data []byte) error {
	e := &expr.Ct{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	if o, ok := matchedConnection[e.Key]; ok && !e.SourceRegister {
		s.registers[registerIndex(e.Register)] = o
		return nil
	}
	return s.set(e.Register, func(o nft.Field) bool {
		own, ok := load(o, s.family, 0).(*expr.Ct)
		return ok && e.Key == own.Key && e.Direction == own.Direction && !e.SourceRegister
	})
}

// slots puts the number of a slot into a register.
func (s *symbolic) slots(name string, data []byte) error {
	if name == "hash" {
		return s.hash(data)
	}
	e := &expr.Numgen{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	scheduler := model.RoundRobin
	if e.Type == unix.NFT_NG_RANDOM {
		scheduler = model.Random
	}
	s.registers[registerIndex(e.Register)] = nft.Slots{Scheduler: scheduler, Count: e.Modulus, First: e.Offset}
	return nil
}

func (s *symbolic) hash(data []byte) error {
	e := &expr.Hash{}
	if err := s.unmarshal(data, e); err != nil {
		return err
	}
	from := registerIndex(e.SourceRegister)
	if e.Type != expr.HashTypeJenkins || e.Seed != nft.HashSeed || s.registers[from] != nft.SourceAddress {
		return errForeign
	}
	delete(s.registers, from)
	s.registers[registerIndex(e.DestRegister)] = nft.Slots{Scheduler: model.SourceHash, Count: e.Modulus, First: e.Offset}
	return nil
}

// byteOrder accepts what nft 1.0.6 puts at times behind the protocol in the key
// of an interval set. It turns the bytes of a single byte around, and so does
// nothing. (The library does not decode this expression.)
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

// matched is an operand that is only ever compared, and is in no key.
type matched string

const (
	connectionStatus    matched = "ct status"
	connectionDirection matched = "ct direction"
	sourceType          matched = "fib saddr type"
	inputInterface      matched = "iifname"
	inputIndex          matched = "iif"
	outputInterface     matched = "oifname"
)

var matchedMeta = map[expr.MetaKey]matched{
	expr.MetaKeyIIFNAME: inputInterface,
	expr.MetaKeyIIF:     inputIndex,
	expr.MetaKeyOIFNAME: outputInterface,
}

var matchedConnection = map[expr.CtKey]matched{
	expr.CtKeySTATUS:    connectionStatus,
	expr.CtKeyDIRECTION: connectionDirection,
}

func (m matched) Text(model.Family) string { return string(m) }
func (m matched) Datatype() nft.Datatype   { return nft.Slot }

// set records the field that is loaded like the expression at hand.
func (s *symbolic) set(r uint32, same func(nft.Field) bool) error {
	for o := nft.SourceAddress; o <= nft.ReplyPort; o++ {
		if same(o) {
			s.registers[registerIndex(r)] = o
			return nil
		}
	}
	return errForeign
}
