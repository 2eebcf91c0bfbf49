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

// recordChange records a change of some frontends: as rendered, and as applied.
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

// eachFrontend calls f for the endpoints of each frontend, in their slots.
func eachFrontend(m *nft.Set, f func(model.FrontendID, []nft.Element)) {
	for rest := m.Elements; len(rest) > 0; {
		var group []nft.Element
		group, rest = plan.CutFrontend(rest)
		f(m.FrontendID(group[0].Key), group)
	}
}
