package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// nft's numbers for data types (its enum datatypes). In the type of a
// concatenation each field takes six bits.
const (
	typeInteger     = 4
	typeIPv4        = 7
	typeIPv6        = 8
	typeInetProto   = 12
	typeInetService = 13
	typeClassID     = 23
	typeBits        = 6

	typeVerdict = 0xffffff00 // the kernel's NFT_DATA_VERDICT
)

func fieldType(d nft.Datatype, f model.Family) (number uint32, size int) {
	switch d {
	case nft.InetProto:
		return typeInetProto, 1
	case nft.Port, nft.PortRange, nft.EndpointPort, nft.ClientPort:
		return typeInetService, 2
	case nft.Verdicts:
		return typeVerdict, 4
	case nft.ClassID, nft.RangeID:
		return typeClassID, 4
	case nft.SlotNumber:
		return typeInteger, 4
	}
	if f == model.IPv6 {
		return typeIPv6, 16
	}
	return typeIPv4, 4
}

func nftTypes(types []nft.Datatype, f model.Family) uint32 {
	id := uint32(0)
	for _, d := range types {
		number, _ := fieldType(d, f)
		id = id<<typeBits | number
	}
	return id
}

// datatypesOf is the inverse of nftTypes, nil for types that we do not use. Of two
// addresses, the frontend or endpoint has the one before the protocol, or before a class and the
// protocol. The other one belongs to an endpoint if a port follows it, else to the client. A class
// right behind the protocol is a range. Of two ports without a protocol the client
// has the first one.
func datatypesOf(id uint32, f model.Family) []nft.Datatype {
	if id == typeVerdict {
		return []nft.Datatype{nft.Verdicts}
	}
	var out []nft.Datatype
	for shift := 24; shift >= 0; shift -= typeBits {
		field := id >> shift & (1<<typeBits - 1)
		switch {
		case field == 0 && out == nil:
		case field == byFamily[uint32](f, typeIPv4, typeIPv6):
			out = append(out, nft.Source)
		case field == typeInetProto:
			out = append(out, nft.InetProto)
		case field == typeInetService:
			out = append(out, nft.Port)
		case field == typeClassID:
			out = append(out, nft.ClassID)
		case field == typeInteger:
			out = append(out, nft.SlotNumber)
		default:
			return nil
		}
	}
	if i := slices.Index(out, nft.InetProto); i > 0 {
		if i > 1 && out[i-1] == nft.ClassID {
			out[i-2] = nft.Address
		} else {
			out[i-1] = nft.Address
		}
		if i+1 < len(out) && out[i+1] == nft.ClassID {
			out[i+1] = nft.RangeID
		}
		if last := len(out) - 1; last > i+2 && out[last] == nft.Port && out[last-1] == nft.Source {
			out[last-1], out[last] = nft.EndpointAddress, nft.EndpointPort
		}
	} else if i := slices.Index(out, nft.Source); i >= 0 {
		out[i] = nft.Address
		if slices.Equal(out[i+1:], []nft.Datatype{nft.Source, nft.Port, nft.Port}) {
			out[i+2] = nft.ClientPort
		}
	}
	return out
}

// widthOf returns the bytes of a field in a key: fields of a concatenation are padded
// to 32-bit registers.
func widthOf(d nft.Datatype, f model.Family) int {
	_, size := fieldType(d, f)
	return max(size, 4)
}

func totalWidth(types []nft.Datatype, f model.Family) int {
	n := 0
	for _, d := range types {
		n += widthOf(d, f)
	}
	return n
}

func appendKey(b []byte, s *nft.Set, k nft.Key) []byte {
	for _, d := range s.Key {
		switch d {
		case nft.InetProto:
			b = append(b, byte(k.Protocol), 0, 0, 0)
		case nft.Port, nft.PortRange:
			b = append(binary.BigEndian.AppendUint16(b, k.Port), 0, 0)
		case nft.RangeID:
			b = binary.NativeEndian.AppendUint32(b, uint32(k.Port))
		case nft.EndpointPort, nft.ClientPort:
			b = append(binary.BigEndian.AppendUint16(b, uint16(k.Slot)), 0, 0)
		case nft.ClassID, nft.SlotNumber:
			b = binary.NativeEndian.AppendUint32(b, k.Slot) // as meta loads it
		default:
			b = appendAddress(b, s.Prefix(k, d).Addr())
		}
	}
	return b
}

func appendAddress(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		ip := a.As4()
		return append(b, ip[:]...)
	}
	ip := a.As16()
	return append(b, ip[:]...)
}

var errForeignKey = errors.New("not a key of ours")

// parseKey is the inverse of appendKey, except for the ends of the intervals of a set.
func parseKey(b []byte, types []nft.Datatype, f model.Family) (nft.Key, error) {
	var k nft.Key
	if len(b) != totalWidth(types, f) {
		return k, fmt.Errorf("parse key: %d bytes instead of %d", len(b), totalWidth(types, f))
	}
	for _, d := range types {
		field := b[:widthOf(d, f)]
		b = b[len(field):]
		switch d {
		case nft.InetProto:
			k.Protocol = model.Protocol(field[0])
		case nft.Port, nft.PortRange:
			k.Port = binary.BigEndian.Uint16(field)
		case nft.RangeID:
			id := binary.NativeEndian.Uint32(field)
			if k.Port = uint16(id); id>>16 != 0 {
				return k, errForeignKey
			}
		case nft.EndpointPort, nft.ClientPort:
			k.Slot = uint32(binary.BigEndian.Uint16(field))
		case nft.ClassID, nft.SlotNumber:
			k.Slot = binary.NativeEndian.Uint32(field)
		case nft.Source, nft.EndpointAddress:
			k.Source, _ = netip.AddrFromSlice(field) // 4 or 16 bytes by width
		default:
			k.Address, _ = netip.AddrFromSlice(field)
		}
	}
	return k, nil
}

func appendEndpoint(b []byte, s *nft.Set, e netip.AddrPort) []byte {
	b = appendAddress(b, e.Addr())
	if len(s.Data) == 1 {
		return b
	}
	return append(binary.BigEndian.AppendUint16(b, e.Port()), 0, 0)
}

func parseEndpoint(b []byte, s *nft.Set, f model.Family) (netip.AddrPort, error) {
	if n := totalWidth(s.Data, f); len(b) != n {
		return netip.AddrPort{}, fmt.Errorf("parse endpoint: %d bytes instead of %d", len(b), n)
	}
	n := widthOf(nft.Address, f)
	a, _ := netip.AddrFromSlice(b[:n])
	port := uint16(0)
	if len(s.Data) > 1 {
		port = binary.BigEndian.Uint16(b[n:])
	}
	return netip.AddrPortFrom(a, port), nil
}
