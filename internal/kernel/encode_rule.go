package kernel

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// NFT_META_L4PROTO and the other numbers below are those of
// linux/netfilter/nf_tables.h. statusDNAT is IPS_DST_NAT of
// linux/netfilter/nf_conntrack_common.h, directionReply IP_CT_DIR_REPLY of
// linux/netfilter/nf_conntrack_tuple_common.h.
const (
	statusDNAT     = 1 << 5
	directionReply = 1

	rejectICMPUnreachable = 0 // NFT_REJECT_ICMP_UNREACH
	rejectTCPReset        = 1 // NFT_REJECT_TCP_RST
	icmpPortUnreachable   = 3
	icmp6PortUnreachable  = 4
)

// appendStatement appends the expressions of a statement.
func appendStatement(a *attributes, s nft.Statement, f model.Family) error {
	exprs, err := expressions(s, f)
	if err != nil {
		return err
	}
	for _, x := range exprs {
		data, err := expr.Marshal(familyNumber(f), x)
		if err != nil {
			return fmt.Errorf("marshal %s: %w", s.Text(f), err)
		}
		end := a.nest(unix.NFTA_LIST_ELEM)
		*a = append(*a, data...)
		end()
	}
	return nil
}

// expressions returns the kernel's bytecode for a statement, in the form in
// which nft writes it. What is loaded goes to the first 32-bit register and
// onwards.
func expressions(s nft.Statement, f model.Family) ([]expr.Any, error) {
	switch s := s.(type) {
	case nft.ProtocolIs:
		// [ meta load l4proto => reg 1 ]
		// [ cmp eq reg 1 0x00000006 ]
		return []expr.Any{
			load(nft.TransportProtocol, f, 0),
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{byte(s.Protocol)}},
		}, nil
	case nft.NotTranslated:
		// [ ct load status => reg 1 ]
		// [ bitwise reg 1 = ( reg 1 & 0x00000020 ) ^ 0x00000000 ]
		// [ cmp eq reg 1 0x00000000 ]
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATUS, Register: register(0)},
			bitwise(binary.NativeEndian.AppendUint32(nil, statusDNAT)),
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: make([]byte, 4)},
		}, nil
	case nft.IsAnswer:
		// [ ct load direction => reg 1 ]
		// [ cmp eq reg 1 0x01 ]
		return []expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{directionReply}},
		}, nil
	case nft.SourceIsLocal:
		// [ fib saddr type => reg 1 ]
		// [ cmp eq reg 1 0x00000002 ]
		return []expr.Any{
			&expr.Fib{Register: register(0), ResultADDRTYPE: true, FlagSADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
		}, nil
	case nft.NotFrom:
		// [ meta load iifname => reg 1 ]
		// [ cmp neq reg 1 0x696c6163 ]
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: interfaceName(s)},
		}, nil
	case nft.NotTo:
		// [ meta load oifname => reg 1 ]
		// [ cmp neq reg 1 0x696c6163 ]
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: interfaceName(nft.NotFrom(s))},
		}, nil
	case nft.CameIn:
		// [ meta load iif => reg 1 ]
		// [ cmp neq reg 1 0x00000000 ]
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIF, Register: register(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, 4)},
		}, nil
	case nft.OneIn:
		// [ numgen reg 1 = random mod 8 ]
		// [ cmp eq reg 1 0x00000000 ]
		return append(slots(s.Number(), f, 0), &expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: make([]byte, 4)}), nil
	case nft.SourceNotIn:
		return sourceNotIn(s, f), nil
	case nft.InSet:
		// [ payload load 4b @ network header + 16 => reg 1 ]
		// [ lookup reg 1 set cluster-ips ]
		return append(loadKey(s.Key, f), &expr.Lookup{SourceRegister: register(0), SetName: s.Set, Invert: s.Not}), nil
	case nft.VerdictMap:
		// [ lookup reg 1 set services dreg 0 ]
		return append(loadKey(s.Key, f), &expr.Lookup{
			SourceRegister: register(0), SetName: s.Map, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
		}), nil
	case nft.DNAT:
		// [ lookup reg 1 set endpoints dreg 1 ]
		// [ nat dnat ip addr_min reg 1 proto_min reg 9 ]
		return append(loadKey(s.Key, f),
			&expr.Lookup{SourceRegister: register(0), SetName: s.Map, DestRegister: register(0), IsDestRegSet: true},
			dnat(f)), nil
	case nft.Remember:
		return dynset(s.Map, s.Key, unix.NFT_DYNSET_OP_UPDATE, s.Timeout, f), nil
	case nft.Forget:
		return dynset(s.Map, s.Key, dynsetDelete, 0, f), nil
	case nft.Masquerade:
		return []expr.Any{&expr.Masq{FullyRandom: true}}, nil
	case nft.Refuse:
		return []expr.Any{reject(f)}, nil
	case nft.Reset:
		return []expr.Any{&expr.Reject{Type: rejectTCPReset}}, nil
	case nft.Verdict:
		return []expr.Any{&expr.Verdict{Kind: verdictCode(s.Action), Chain: s.Chain}}, nil
	}
	return nil, fmt.Errorf("no bytecode for %q", s.Text(f))
}

// register returns the number of the i-th 32-bit register. Where a 128-bit
// register starts there, its number is used, as the kernel does in listings.
func register(i int) uint32 {
	if i%4 == 0 {
		return uint32(unix.NFT_REG_1 + i/4)
	}
	return uint32(unix.NFT_REG32_00 + i)
}

// registerIndex is the inverse of register.
func registerIndex(r uint32) int {
	if r >= unix.NFT_REG32_00 {
		return int(r) - unix.NFT_REG32_00
	}
	return (int(r) - unix.NFT_REG_1) * 4
}

// loadKey loads the operands of a key side by side.
func loadKey(key nft.Concat, f model.Family) []expr.Any {
	return loadKeyAt(key, f, 0)
}

func loadKeyAt(key nft.Concat, f model.Family, i int) []expr.Any {
	var out []expr.Any
	for _, o := range key {
		switch o := o.(type) {
		case nft.Slots:
			out = append(out, slots(o, f, i)...)
		case nft.Field:
			out = append(out, load(o.Loaded(), f, i))
			if o != o.Loaded() { // it comes first in every key
				// [ bitwise reg 1 = ( reg 1 & 0x00000000 ) ^ 0x00000000 ]
				out = append(out, bitwise(make([]byte, width(o.Datatype(), f))))
			}
		}
		i += width(o.Datatype(), f) / 4
	}
	return out
}

// hashed is the register for what a hash is taken of, behind every key that
// ends with a slot.
const hashed = 8

// slots computes the number of a slot into the i-th register.
func slots(s nft.Slots, f model.Family, i int) []expr.Any {
	switch s.Scheduler {
	case model.Random:
		return []expr.Any{&expr.Numgen{Register: register(i), Modulus: s.Count, Type: unix.NFT_NG_RANDOM, Offset: s.First}}
	case model.SourceHash:
		// [ payload load 4b @ network header + 12 => reg 3 ]
		// [ hash reg 11 = jhash(reg 3, 4, 0x6e667478) % mod 3 ]
		return []expr.Any{
			load(nft.SourceAddress, f, hashed),
			&expr.Hash{
				SourceRegister: register(hashed), DestRegister: register(i), Length: uint32(width(nft.Source, f)),
				Modulus: s.Count, Seed: nft.HashSeed, Offset: s.First, Type: expr.HashTypeJenkins,
			},
		}
	}
	return []expr.Any{&expr.Numgen{Register: register(i), Modulus: s.Count, Type: unix.NFT_NG_INCREMENTAL, Offset: s.First}}
}

// load loads a field into the i-th register.
func load(o nft.Field, f model.Family, i int) expr.Any {
	r := register(i)
	length := uint32(width(nft.Address, f))
	switch o {
	case nft.SourceAddress:
		return &expr.Payload{DestRegister: r, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset(f), Len: length}
	case nft.DestinationAddress:
		return &expr.Payload{DestRegister: r, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset(f) + length, Len: length}
	case nft.TransportProtocol:
		return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r}
	case nft.DestinationPort:
		return &expr.Payload{DestRegister: r, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
	case nft.OriginalSource:
		return &expr.Ct{Key: sourceKey(f), Register: r, Direction: expr.CtDirOriginal}
	case nft.OriginalDestination:
		return &expr.Ct{Key: destinationKey(f), Register: r, Direction: expr.CtDirOriginal}
	case nft.OriginalPort:
		return &expr.Ct{Key: expr.CtKeyPROTODST, Register: r, Direction: expr.CtDirOriginal}
	case nft.ReplySource:
		return &expr.Ct{Key: sourceKey(f), Register: r, Direction: expr.CtDirReply}
	default:
		return &expr.Ct{Key: expr.CtKeyPROTOSRC, Register: r, Direction: expr.CtDirReply}
	}
}

// sourceOffset returns where the source address stands in the IP header.
func sourceOffset(f model.Family) uint32 {
	if f == model.IPv6 {
		return 8
	}
	return 12
}

// destinationKey needs kernel 4.17; the older NFT_CT_DST has no fixed length.
func destinationKey(f model.Family) expr.CtKey {
	if f == model.IPv6 {
		return expr.CtKeyDSTIP6
	}
	return expr.CtKeyDSTIP
}

func sourceKey(f model.Family) expr.CtKey {
	if f == model.IPv6 {
		return expr.CtKeySRCIP6
	}
	return expr.CtKeySRCIP
}

// dynsetDelete is NFT_DYNSET_OP_DELETE, since kernel 5.3.
const dynsetDelete = 2

// dynset loads the key and, right behind it, the endpoint: for IPv6 they fill
// 15 of the 16 registers.
//
//	[ dynset update reg_key 1 set affinity sreg_data 2 timeout 10800000ms ]
func dynset(set string, key nft.Concat, operation uint32, timeout time.Duration, f model.Family) []expr.Any {
	data := 0
	for _, o := range key {
		data += width(o.Datatype(), f) / 4
	}
	out := loadKey(key, f)
	out = append(out, loadKeyAt(nft.RememberedEndpoint, f, data)...)
	return append(out, &expr.Dynset{
		SrcRegKey: register(0), SrcRegData: register(data), SetName: set, Operation: operation, Timeout: timeout,
	})
}

// interfaceName returns what the name of an interface is compared with: all
// its bytes, or those of the beginning (IFNAMSIZ is 16).
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
// Like nft we load no more than the bytes of a prefix that ends on a byte
// boundary, and need no mask then.
func sourceNotIn(s nft.SourceNotIn, f model.Family) []expr.Any {
	address := s.Prefix.Masked().Addr().AsSlice()
	source := load(nft.SourceAddress, f, 0).(*expr.Payload)
	cmp := &expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: address}
	if bits := s.Prefix.Bits(); bits%8 == 0 && bits > 0 {
		source.Len = uint32(bits / 8)
		cmp.Data = address[:bits/8]
		return []expr.Any{source, cmp}
	}
	return []expr.Any{source, bitwise(maskOf(s.Prefix.Bits(), len(address))), cmp}
}

func maskOf(bits, length int) []byte {
	m := make([]byte, length)
	for i := range bits {
		m[i/8] |= 1 << (7 - i%8)
	}
	return m
}

func bitwise(mask []byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: register(0), DestRegister: register(0),
		Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
	}
}

// dnat takes address and port from the data that a lookup left in the first
// registers.
func dnat(f model.Family) *expr.NAT {
	port := register(width(nft.Address, f) / 4)
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyNumber(f)), RegAddrMin: register(0), RegProtoMin: port}
}

func reject(f model.Family) *expr.Reject {
	if f == model.IPv6 {
		return &expr.Reject{Type: rejectICMPUnreachable, Code: icmp6PortUnreachable}
	}
	return &expr.Reject{Type: rejectICMPUnreachable, Code: icmpPortUnreachable}
}

func verdictCode(a nft.Action) expr.VerdictKind {
	switch a {
	case nft.Accept:
		return expr.VerdictAccept
	case nft.Goto:
		return expr.VerdictGoto
	case nft.Jump:
		return expr.VerdictJump
	}
	return expr.VerdictDrop
}
