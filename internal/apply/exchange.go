package apply

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

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
