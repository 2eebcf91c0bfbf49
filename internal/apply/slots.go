package apply

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// slots is the only record of where the kernel has the endpoints of a frontend: render
// only proposes an order, and plan.Settle keeps endpoints where they are. Frontends with
// the proposed order have no entry; the others have, for each slot, the position of its
// endpoint in that order. If another program changes the slots, the kernel refuses the
// next change, or a comparison finds it.
type slots map[model.FrontendID][]uint32

func (s slots) recordChange(before, rendered, applied *nft.Ruleset) {
	for _, t := range before.Tables {
		for services := range setsOf(t, nft.ServiceMaps) {
			for i := range services.Elements {
				delete(s, services.FrontendID(services.Elements[i].Key))
			}
		}
	}
	for i, t := range applied.Tables {
		for settled := range setsOf(t, nft.SlotMaps) {
			if proposed := rendered.Tables[i].Set(settled.Name); proposed != settled { // there was something before
				s.recordOrder(proposed, settled)
			}
		}
	}
}

func (s slots) recordOrder(proposed, settled *nft.Set) {
	rest := settled.Elements
	eachFrontend(proposed, func(f model.FrontendID, group []nft.Element) {
		for settled.FrontendID(rest[0].Key) != f { // of an exchange
			rest = rest[1:]
		}
		if order := orderOf(group, rest[:len(group)]); order != nil {
			s[f] = order
		}
		rest = rest[len(group):]
	})
}

func setsOf(t *nft.Table, names []string) iter.Seq[*nft.Set] {
	return func(yield func(*nft.Set) bool) {
		for _, name := range names {
			if s := t.Set(name); s != nil && !yield(s) {
				return
			}
		}
	}
}

// orderOf returns the position in proposed of the endpoint in each slot of applied, nil
// if both are equal. An endpoint may have several slots.
func orderOf(proposed, applied []nft.Element) []uint32 {
	if slices.EqualFunc(proposed, applied, func(a, b nft.Element) bool { return a.Value.Endpoint == b.Value.Endpoint }) {
		return nil
	}
	order := make([]uint32, len(proposed))
	var few, others [plan.FewSlots]uint32
	from, to := plan.AppendByEndpoint(few[:0], proposed), plan.AppendByEndpoint(others[:0], applied)
	for i, slot := range to {
		order[slot] = from[i]
	}
	return order
}

// placeEndpoints changes a rendered ruleset so that the endpoints have the slots that they have
// in the kernel, and reports whether these are known.
func (s slots) placeEndpoints(r *nft.Ruleset) (ok bool) {
	ok = true
	for _, t := range r.Tables {
		for m := range setsOf(t, nft.SlotMaps) {
			ok = s.placeMap(m) && ok
		}
	}
	return ok
}

func (s slots) placeMap(m *nft.Set) (ok bool) {
	ok = true
	eachFrontend(m, func(f model.FrontendID, group []nft.Element) {
		order := s[f]
		if order == nil || len(order) != len(group) {
			ok = ok && order == nil
			return
		}
		var few [plan.FewSlots]netip.AddrPort
		proposed := few[:0]
		for i := range group {
			proposed = append(proposed, group[i].Value.Endpoint)
		}
		for i, position := range order {
			group[i].Value.Endpoint = proposed[position]
		}
	})
	return ok
}

func eachFrontend(m *nft.Set, f func(model.FrontendID, []nft.Element)) {
	for rest := m.Elements; len(rest) > 0; {
		var group []nft.Element
		group, rest = plan.CutFrontend(rest)
		f(m.FrontendID(group[0].Key), group)
	}
}

// addExchanges adds the elements that exchanges change to the rulesets before and after the change, and
// notes the slots of the endpoints after it. It reports whether the slots before it are known.
func (u *execution) addExchanges() (ok bool) {
	for i := range u.delta.Exchanges {
		x := &u.delta.Exchanges[i]
		id := x.Frontend.ID()
		order := u.slots[id]
		if order != nil && len(order) != x.Endpoints {
			return false
		}
		f := model.FamilyOf(x.Frontend.Address)
		before, after := u.before.Table(f).Set(nft.EndpointsMap), u.after.Table(f).Set(nft.EndpointsMap)
		if order = addExchange(x, order, before, after); order != nil {
			u.moved = append(u.moved, placement{id, order})
		}
	}
	if len(u.delta.Exchanges) > 0 {
		sortEndpoints(u.before)
		sortEndpoints(u.after)
	}
	return true
}

func sortEndpoints(r *nft.Ruleset) {
	for _, t := range r.Tables {
		if s := t.Set(nft.EndpointsMap); s != nil {
			s.Sort()
		}
	}
}

// addExchange adds the elements of the slots that an exchange changes, and returns the order of the
// endpoints in all slots after it, as [slots] has it. As [plan.Settle] does it, endpoints that come
// take the slots of those that go, in the order of rendering.
func addExchange(x *nft.Exchange, order []uint32, before, after *nft.Set) []uint32 {
	var memory [64]uint32
	positions := positionsAfter(x, memory[:0])
	now, in, asRendered := make([]uint32, x.Endpoints), x.In, true
	key := nft.FrontendKey(x.Frontend)
	for slot := range now {
		at := slot
		if order != nil {
			at = int(order[slot])
		}
		now[slot] = positions[at]
		if out := now[slot]; out >= gone {
			key.Slot = nft.FirstSlot + uint32(slot)
			before.Elements = append(before.Elements, nft.Element{Key: key, Value: nft.Value{Endpoint: x.Out[out-gone].Endpoint}})
			after.Elements = append(after.Elements, nft.Element{Key: key, Value: nft.Value{Endpoint: in[0].Endpoint}})
			now[slot], in = in[0].At, in[1:]
		}
		asRendered = asRendered && now[slot] == uint32(slot)
	}
	if asRendered {
		return nil
	}
	return now
}

// gone is more than any position.
const gone = 1 << 31

// positionsAfter returns the positions after an exchange, by those before it. Those of endpoints that
// go are [gone] and their index. The result may be in the memory.
func positionsAfter(x *nft.Exchange, memory []uint32) []uint32 {
	out, in, next := 0, 0, uint32(0)
	for at := range uint32(x.Endpoints) {
		if out < len(x.Out) && x.Out[out].At == at {
			memory = append(memory, gone+uint32(out))
			out++
			continue
		}
		for in < len(x.In) && x.In[in].At == next {
			in, next = in+1, next+1
		}
		memory = append(memory, next)
		next++
	}
	return memory
}
