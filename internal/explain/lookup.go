package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// lookup finds the element for a packet and notes it, or that there is none. It
// stops the packet and returns false if that cannot be told.
func (w *walk) lookup(t *turn, key nft.Concat, set string) (*nft.Element, bool) {
	s, k, why := w.key(t, key, set)
	if s == nil {
		t.stop(Unknown, why)
		return nil, false
	}
	e := find(s, k, key, t)
	choice := slices.ContainsFunc(key, func(o nft.Operand) bool { return o.Datatype() == nft.Slot })
	switch {
	case e == nil && choice:
		t.step.Details = append(t.step.Details, "the slot is not in @"+set)
	case e == nil:
		t.step.Details = append(t.step.Details, "not in @"+set)
	case choice: // the elements differ by endpoint, and the step is to be the same
		t.step.sets = append(t.step.sets, set)
		t.step.Details = append(t.step.Details, fmt.Sprintf("@%s: an endpoint for each slot", set))
	default:
		t.step.sets = append(t.step.sets, set)
		t.step.Details = append(t.step.Details, fmt.Sprintf("@%s: %s", set, s.ElementText(e)))
	}
	return e, true
}

// key puts together what a packet is looked up by. Without a set it tells why.
func (w *walk) key(t *turn, key nft.Concat, set string) (*nft.Set, nft.Key, string) {
	s := w.table.Set(set)
	if s == nil || len(s.Key) == 0 {
		return nil, nft.Key{}, fmt.Sprintf("set @%s is not ours", set)
	}
	fits := func(o nft.Operand, d nft.Datatype) bool { return o.Datatype() == d }
	if !slices.EqualFunc(key, s.Key, fits) {
		return nil, nft.Key{}, fmt.Sprintf("the key %q does not fit @%s", key.Text(w.table.Family), set)
	}
	var k nft.Key
	for _, o := range key {
		switch o := o.(type) {
		case nft.Field:
			t.load(o, &k)
		case nft.Slots:
			k.Slot = t.slot
		default:
			return nil, k, fmt.Sprintf("%q in a key is not known", o.Text(w.table.Family))
		}
	}
	return s, k, ""
}

// keyText prints the key of a packet, whose source may not be known.
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
func (t *turn) load(f nft.Field, k *nft.Key) {
	switch f {
	case nft.SourceAddress, nft.OriginalSource:
		k.Source = t.Source
	case nft.DestinationAddress:
		k.Address = t.Destination
	case nft.TransportProtocol:
		k.Protocol = t.Protocol
	case nft.DestinationPort:
		k.Port = t.Port
	case nft.OriginalDestination:
		k.Address = t.dialled.Address
	case nft.OriginalPort:
		k.Port = t.dialled.Port
	case nft.ReplySource:
		k.Source = t.Destination
	case nft.ReplyPort:
		k.Slot = uint32(t.Port)
	case nft.AnyDestination, nft.AnyOriginalDestination:
		k.Address = model.Wildcard(model.FamilyOf(t.Destination))
	}
}

// find returns the element for a key, or nil. A packet without a port or
// without a known source is in no set that asks for it.
func find(s *nft.Set, k nft.Key, key nft.Concat, t *turn) *nft.Element {
	for _, o := range key {
		if o.Datatype() == nft.Port && k.Port == 0 || o.Datatype() == nft.Source && !t.Source.IsValid() {
			return nil
		}
	}
	if s.Interval {
		i := slices.IndexFunc(s.Elements, func(e nft.Element) bool { return covers(s, e.Key, k) })
		if i < 0 {
			return nil
		}
		return &s.Elements[i]
	}
	i, ok := slices.BinarySearchFunc(s.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	if !ok {
		return nil
	}
	return &s.Elements[i]
}

// covers tells whether the interval of an element holds a key.
func covers(s *nft.Set, e, k nft.Key) bool {
	if e.Bits == nft.Range {
		return e.Address.Compare(k.Address) <= 0 && k.Address.Compare(e.Source) <= 0
	}
	for _, d := range s.Key {
		if !coversField(s, d, e, k) {
			return false
		}
	}
	return true
}

func coversField(s *nft.Set, d nft.Datatype, e, k nft.Key) bool {
	switch d {
	case nft.Address:
		return s.Prefix(e, d).Contains(k.Address)
	case nft.Source:
		return s.Prefix(e, d).Contains(k.Source)
	case nft.EndpointAddress:
		return e.Source == k.Source
	case nft.InetProto:
		return e.Protocol == k.Protocol
	case nft.Port:
		return e.Port == k.Port
	}
	return e.Slot == k.Slot
}
