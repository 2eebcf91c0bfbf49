package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// lookup finds the element for a packet and notes it, or that there is none. It
// stops the packet and returns false if that cannot be told.
func (w *walk) lookup(t *turn, key render.Concat, set string) (*render.Element, bool) {
	s, k, why := w.key(t, key, set)
	if s == nil {
		t.stop(Unknown, why)
		return nil, false
	}
	e := find(s, k, key, t)
	choice := slices.ContainsFunc(key, func(o render.Operand) bool { return o.Datatype() == render.Slot })
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
func (w *walk) key(t *turn, key render.Concat, set string) (*render.Set, render.Key, string) {
	s := w.table.Set(set)
	if s == nil || len(s.Key) == 0 {
		return nil, render.Key{}, fmt.Sprintf("set @%s is not ours", set)
	}
	fits := func(o render.Operand, d render.Datatype) bool { return o.Datatype() == d }
	if !slices.EqualFunc(key, s.Key, fits) {
		return nil, render.Key{}, fmt.Sprintf("the key %q does not fit @%s", key.Text(w.table.Family), set)
	}
	var k render.Key
	for _, o := range key {
		switch o := o.(type) {
		case render.Field:
			t.load(o, &k)
		case render.Slots:
			k.Slot = t.slot
		default:
			return nil, k, fmt.Sprintf("%q in a key is not known", o.Text(w.table.Family))
		}
	}
	return s, k, ""
}

// keyText prints the key of a packet, whose source may not be known.
func keyText(s *render.Set, k render.Key) string {
	if k.Source.IsValid() {
		return s.KeyText(k)
	}
	parts := make([]string, len(s.Key))
	for i, d := range s.Key {
		parts[i] = "the client's address"
		if d != render.Source {
			parts[i] = (&render.Set{Key: []render.Datatype{d}}).KeyText(k)
		}
	}
	return strings.Join(parts, " . ")
}

// load puts a field of the packet into its place in a key.
func (t *turn) load(f render.Field, k *render.Key) {
	switch f {
	case render.SourceAddress, render.OriginalSource:
		k.Source = t.Source
	case render.DestinationAddress:
		k.Address = t.Destination
	case render.TransportProtocol:
		k.Protocol = t.Protocol
	case render.DestinationPort:
		k.Port = t.Port
	case render.OriginalDestination:
		k.Address = t.dialled.Address
	case render.OriginalPort:
		k.Port = t.dialled.Port
	case render.ReplySource:
		k.Source = t.Destination
	case render.ReplyPort:
		k.Slot = uint32(t.Port)
	case render.AnyDestination, render.AnyOriginalDestination:
		k.Address = model.Wildcard(model.FamilyOf(t.Destination))
	}
}

// find returns the element for a key, or nil. A packet without a port or
// without a known source is in no set that asks for it.
func find(s *render.Set, k render.Key, key render.Concat, t *turn) *render.Element {
	for _, o := range key {
		if o.Datatype() == render.Port && k.Port == 0 || o.Datatype() == render.Source && !t.Source.IsValid() {
			return nil
		}
	}
	if s.Interval {
		i := slices.IndexFunc(s.Elements, func(e render.Element) bool { return covers(s, e.Key, k) })
		if i < 0 {
			return nil
		}
		return &s.Elements[i]
	}
	i, ok := slices.BinarySearchFunc(s.Elements, k, func(e render.Element, k render.Key) int { return e.Key.Compare(k) })
	if !ok {
		return nil
	}
	return &s.Elements[i]
}

// covers tells whether the interval of an element holds a key.
func covers(s *render.Set, e, k render.Key) bool {
	if e.Bits == render.Range {
		return e.Address.Compare(k.Address) <= 0 && k.Address.Compare(e.Source) <= 0
	}
	for _, d := range s.Key {
		if !coversField(s, d, e, k) {
			return false
		}
	}
	return true
}

func coversField(s *render.Set, d render.Datatype, e, k render.Key) bool {
	switch d {
	case render.Address:
		return s.Prefix(e, d).Contains(k.Address)
	case render.Source:
		return s.Prefix(e, d).Contains(k.Source)
	case render.EndpointAddress:
		return e.Source == k.Source
	case render.InetProto:
		return e.Protocol == k.Protocol
	case render.Port:
		return e.Port == k.Port
	}
	return e.Slot == k.Slot
}
