package apply

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// placement is which endpoint the kernel has in which slot of a frontend.
// Nobody but us writes there; who does it all the same makes the next patch
// fail, or is found when the kernel is read.
type placement map[model.Frontend][]netip.AddrPort

// remember takes the elements of the endpoints map of a ruleset, sorted, in.
func (s placement) remember(r *nft.Ruleset) {
	for _, t := range r.Tables {
		m := t.Set(nft.EndpointsMap)
		for rest := m.Elements; len(rest) > 0; {
			var group []nft.Element
			group, rest = plan.CutFrontend(rest)
			endpoints := make([]netip.AddrPort, len(group))
			for i := range group {
				endpoints[i] = group[i].Value.Endpoint
			}
			s[group[0].Key.Frontend()] = endpoints
		}
	}
}

// forget removes the frontends in the services maps of a ruleset.
func (s placement) forget(r *nft.Ruleset) {
	for _, t := range r.Tables {
		for i := range t.Set(nft.ServicesMap).Elements {
			delete(s, t.Set(nft.ServicesMap).Elements[i].Key.Frontend())
		}
	}
}

// place puts the endpoints of a ruleset into the slots that they have in the
// kernel. It changes the ruleset. ok is false if these are not known.
func (s placement) place(r *nft.Ruleset) (ok bool) {
	for _, t := range r.Tables {
		m := t.Set(nft.EndpointsMap)
		for rest := m.Elements; len(rest) > 0; {
			var group []nft.Element
			group, rest = plan.CutFrontend(rest)
			known := s[group[0].Key.Frontend()]
			if len(known) != len(group) {
				return false
			}
			for i := range group {
				group[i].Value.Endpoint = known[i]
			}
		}
	}
	return true
}

// Patch carries out what is different between two parts of the tables, as
// [render.Composer.Change] gives them, without reading the kernel: it must be at
// what was applied last. After an error that is no longer certain; the next
// change has to be an [Applier.Apply]. The rulesets must not be used afterwards.
func (a *Applier) Patch(before, after *nft.Ruleset) (*plan.Plan, error) {
	if a.known == nil || !a.known.place(before) {
		return nil, errUnknown
	}
	settled := plan.Settle(before, after)
	todo := plan.Diff(before, settled)
	if _, _, err := a.try(todo, kernel.AnyGeneration); err != nil {
		a.known = nil
		return nil, err
	}
	a.known.forget(before)
	a.known.remember(settled)
	return todo, nil
}
