package nft

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Operand is a part of a lookup key, loaded from the packet, its connection or
// a counter.
type Operand interface {
	Text(f model.Family) string
	Datatype() Datatype
}

// Field is an operand that the packet or its connection tracking entry holds.
type Field uint8

const (
	SourceAddress       Field = iota
	DestinationAddress        // after DNAT: the endpoint's
	TransportProtocol         // past any IPv6 extension headers
	SourcePort                // of TCP, UDP and SCTP alike
	DestinationPort           // the same
	OriginalSource            // the client's address, before any translation
	OriginalDestination       // the address that the client dialled
	OriginalPort              // the port that the client dialled
	ReplySource               // the sender of answers: after DNAT the endpoint
	ReplyPort                 // the endpoint's port
	OriginalClientPort        // the client's port

	// The unspecified address in place of a loaded one: the key of a NodePort that is
	// served on several addresses. nft has no other way to write a constant there.
	AnyDestination
	AnyOriginalDestination

	// PacketGroup is the group of the server whose class is in the packet.
	PacketGroup

	// PacketClass is the class or slot that [Classify] or [Choose] has put into the packet.
	PacketClass
)

// fields have the text for IPv4, and the type; those that are masked have no text of their own.
var fields = [...]struct {
	text     string
	datatype Datatype
}{
	SourceAddress: {"ip saddr", Source}, DestinationAddress: {"ip daddr", Address}, TransportProtocol: {"meta l4proto", InetProto},
	SourcePort: {"th sport", ClientPort}, DestinationPort: {"th dport", Port},
	OriginalSource: {"ct original ip saddr", Source}, OriginalDestination: {"ct original ip daddr", Address},
	OriginalPort: {"ct original proto-dst", Port}, OriginalClientPort: {"ct original proto-src", ClientPort},
	ReplySource: {"ct reply ip saddr", EndpointAddress}, ReplyPort: {"ct reply proto-src", EndpointPort},
	AnyDestination: {"", Address}, AnyOriginalDestination: {"", Address}, PacketGroup: {"", ClassID}, PacketClass: {"meta priority", ClassID},
}

func (o Field) Text(f model.Family) string {
	loaded := o.Loaded()
	text := fields[loaded].text
	if f == model.IPv6 {
		text = strings.Replace(text, "ip ", "ip6 ", 1)
	}
	switch {
	case o == PacketGroup:
		text += " & " + groupMask.String()
	case o != loaded:
		text += " & " + model.Wildcard(f).String()
	}
	return text
}

// Loaded returns the field that is loaded for o, and masked if it differs.
func (o Field) Loaded() Field {
	switch o {
	case AnyDestination:
		return DestinationAddress
	case AnyOriginalDestination:
		return OriginalDestination
	case PacketGroup:
		return PacketClass
	}
	return o
}

func GroupMask() Class { return groupMask }

// Any returns the field with the unspecified address in place of this address.
func (o Field) Any() (Field, bool) {
	for _, a := range []Field{AnyDestination, AnyOriginalDestination} {
		if a.Loaded() == o {
			return a, true
		}
	}
	return o, false
}

func (o Field) Datatype() Datatype { return fields[o].datatype }

// SourceNetwork is the address of the network of some length that the client is in.
type SourceNetwork struct{ Bits uint8 }

// Networks returns the operand for networks of a length: the address of the client itself
// if they have no others.
func Networks(f model.Family, bits uint8) Operand {
	if int(bits) == model.Wildcard(f).BitLen() {
		return SourceAddress
	}
	return SourceNetwork{bits}
}

func (o SourceNetwork) Text(f model.Family) string {
	return SourceAddress.Text(f) + " & " + o.maskAddress(f).String()
}

func (o SourceNetwork) Datatype() Datatype { return Source }

func (o SourceNetwork) maskAddress(f model.Family) netip.Addr {
	ones := bytes.Repeat([]byte{0xff}, model.Wildcard(f).BitLen()/8)
	all, _ := netip.AddrFromSlice(ones)
	p, _ := all.Prefix(int(o.Bits))
	return p.Addr()
}

// Slots picks one of Count numbers, from First on.
type Slots struct {
	Scheduler    model.Scheduler // not the default
	Count, First uint32
}

// Seeds make a hash choose the same endpoint on every node and after a restart: without
// one the kernel uses a random seed. They also tell the schedulers apart when rules are
// read.
const (
	HashSeed   = 0x6e667478 // source-hash
	MaglevSeed = 0x6d61676c
)

// Hash returns the hashed fields, and the seed; nil: the slot is no hash.
func (o Slots) Hash() (key Concat, seed uint32) {
	switch o.Scheduler {
	case model.SourceHash:
		return Concat{SourceAddress}, HashSeed
	case model.Maglev:
		return Concat{SourceAddress}, MaglevSeed
	case model.MaglevPort:
		return Concat{SourceAddress, SourcePort}, MaglevSeed
	}
	return nil, 0
}

func (o Slots) Text(f model.Family) string {
	text := fmt.Sprintf("numgen inc mod %d", o.Count)
	if o.Scheduler == model.Random {
		text = fmt.Sprintf("numgen random mod %d", o.Count)
	} else if key, seed := o.Hash(); key != nil {
		text = fmt.Sprintf("jhash %s mod %d seed 0x%x", key.Text(f), o.Count, seed)
	}
	if o.First > 0 {
		text += fmt.Sprintf(" offset %d", o.First)
	}
	return text
}

func (o Slots) Datatype() Datatype { return ClassID }

// Has reports whether the slot is one of those to choose from.
func (o Slots) Has(slot uint32) bool { return slot >= o.First && slot-o.First < o.Count }

// Concat is a lookup key of one or more operands.
type Concat []Operand

func (c Concat) Text(f model.Family) string {
	texts := make([]string, len(c))
	for i, o := range c {
		texts[i] = o.Text(f)
	}
	return strings.Join(texts, " . ")
}
