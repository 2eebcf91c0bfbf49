package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// lookup returns the element for a packet, or nil, and records the result. If that
// cannot be decided it stops the packet and returns false.
func (tr *tracer) lookup(b *branch, key nft.Concat, set string) (*nft.Element, bool) {
	s, k, why := tr.lookupKey(b, key, set)
	if s == nil {
		b.stop(Unknown, why)
		return nil, false
	}
	e := findElement(s, k, b)
	b.guessed = b.guessed || !b.Source.IsValid() && nft.RowOf(set).Contents == nft.Clients
	switch choice := s.HasSlots(); {
	case e == nil && choice:
		b.note("the slot is not in @%s", set)
	case e == nil:
		b.note("not in @%s", set)
	case choice: // the elements differ by endpoint, but the steps must be equal
		b.noteFound(set, "an endpoint for each slot")
	default:
		b.noteFound(set, s.ElementText(e))
	}
	return e, true
}

// lookupKey returns the set and the key of a lookup; without a set, the reason.
func (tr *tracer) lookupKey(b *branch, key nft.Concat, set string) (*nft.Set, nft.Key, string) {
	s := tr.table.Set(set)
	if s == nil || len(s.Key) == 0 {
		return nil, nft.Key{}, fmt.Sprintf("set @%s is foreign", set)
	}
	if !slices.EqualFunc(key, s.Key, fitsField) {
		return nil, nft.Key{}, fmt.Sprintf("the key %q does not fit @%s", key.Text(tr.table.Family), set)
	}
	var k nft.Key
	for i, o := range key {
		field, isField := o.(nft.Field)
		network, isNetwork := o.(nft.SourceNetwork)
		_, isSlot := o.(nft.Slots)
		switch {
		case s.Key[i] == nft.RangeID:
			if b.class <= model.AllPorts { // else it is no range
				k.Port = uint16(b.class)
			}
		case isField && field.Datatype() != nft.ClientPort: // which is not known
			b.load(field, &k)
		case isNetwork:
			p, _ := b.Source.Prefix(int(network.Bits)) // invalid for an unknown source
			k.Source = p.Addr()
		case isSlot:
			k.Slot = b.slot
		default:
			return nil, k, fmt.Sprintf("unknown operand %q in a key", o.Text(tr.table.Family))
		}
	}
	return s, k, ""
}

// fitsField reports whether an operand fills a field of a key.
func fitsField(o nft.Operand, d nft.Datatype) bool {
	_, slots := o.(nft.Slots)
	switch d {
	case nft.RangeID:
		return o == nft.PacketClass
	case nft.SlotNumber:
		return slots
	case nft.PortRange:
		return o.Datatype() == nft.Port
	}
	return o.Datatype() == d && !slots
}

func keyText(s *nft.Set, k nft.Key) string {
	if k.Source.IsValid() {
		return s.KeyText(k)
	}
	parts := make([]string, len(s.Key))
	for i, d := range s.Key {
		parts[i] = "the client's address"
		if d != nft.Source {
			parts[i] = (&nft.Set{Key: []nft.Datatype{d}}).KeyText(k)
		}
	}
	return strings.Join(parts, " . ")
}

// load puts a field of the packet into its place in a key.
func (b *branch) load(f nft.Field, k *nft.Key) {
	switch f {
	case nft.SourceAddress, nft.OriginalSource:
		k.Source = b.Source
	case nft.DestinationAddress:
		k.Address = b.Destination
	case nft.TransportProtocol:
		k.Protocol = b.Protocol
	case nft.DestinationPort:
		k.Port = b.Port
	case nft.OriginalDestination:
		k.Address = b.dialled.Address
	case nft.OriginalPort:
		k.Port = b.dialled.Port
	case nft.ReplySource:
		k.Source = b.Destination
	case nft.ReplyPort:
		k.Slot = uint32(b.Port)
	case nft.PacketClass:
		k.Slot = uint32(b.class)
	case nft.PacketGroup:
		k.Slot = uint32(b.class.Group())
	case nft.AnyDestination, nft.AnyOriginalDestination:
		k.Address = model.Wildcard(model.FamilyOf(b.Destination))
	}
}

// findElement returns the element for a key, or nil. A packet without a port or a known
// source matches no set that has one in its key.
func findElement(s *nft.Set, k nft.Key, b *branch) *nft.Element {
	hasPort := slices.ContainsFunc(s.Key, func(d nft.Datatype) bool { return d == nft.Port || d == nft.PortRange || d == nft.RangeID })
	if hasPort && k.Port == 0 || slices.Contains(s.Key, nft.Source) && !b.Source.IsValid() {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	if s.Interval {
		i = slices.IndexFunc(s.Elements, func(e nft.Element) bool { return coversKey(s, e.Key, k) })
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return &s.Elements[i]
}

func coversKey(s *nft.Set, e, k nft.Key) bool {
	if e.Bits == nft.Range {
		return e.Address.Compare(k.Address) <= 0 && k.Address.Compare(e.Source) <= 0
	}
	return !slices.ContainsFunc(s.Key, func(d nft.Datatype) bool {
		switch d {
		case nft.Address:
			return !s.Prefix(e, d).Contains(k.Address)
		case nft.Source:
			return !s.Prefix(e, d).Contains(k.Source)
		case nft.EndpointAddress:
			return e.Source != k.Source
		case nft.InetProto:
			return e.Protocol != k.Protocol
		case nft.Port, nft.RangeID:
			return e.Port != k.Port
		case nft.PortRange:
			return k.Port < e.Port || uint32(k.Port) > e.Slot
		}
		return e.Slot != k.Slot
	})
}
