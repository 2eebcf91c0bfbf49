package apply

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// placement is which endpoint the kernel has in which slot of a frontend.
// Nobody but us writes there; who does it all the same makes the next patch
// fail, or is found when the kernel is read.
type placement map[model.Frontend][]netip.AddrPort

// remember takes the elements of the endpoints map of a ruleset, sorted, in.
func (s placement) remember(r *render.Ruleset) {
	for _, t := range r.Tables {
		m := t.Set(render.EndpointsMap)
		for rest := m.Elements; len(rest) > 0; {
			var group []render.Element
			group, rest = cutFrontend(rest)
			endpoints := make([]netip.AddrPort, len(group))
			for i := range group {
				endpoints[i] = group[i].Value.Endpoint
			}
			s[group[0].Key.Frontend()] = endpoints
		}
	}
}

// forget removes the frontends in the services maps of a ruleset.
func (s placement) forget(r *render.Ruleset) {
	for _, t := range r.Tables {
		for i := range t.Set(render.ServicesMap).Elements {
			delete(s, t.Set(render.ServicesMap).Elements[i].Key.Frontend())
		}
	}
}

// place puts the endpoints of a ruleset into the slots that they have in the
// kernel. It changes the ruleset. ok is false if these are not known.
func (s placement) place(r *render.Ruleset) (ok bool) {
	for _, t := range r.Tables {
		m := t.Set(render.EndpointsMap)
		for rest := m.Elements; len(rest) > 0; {
			var group []render.Element
			group, rest = cutFrontend(rest)
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
func (a *Applier) Patch(before, after *render.Ruleset) (*Plan, error) {
	if a.known == nil || !a.known.place(before) {
		return nil, errUnknown
	}
	settled := Settle(before, after)
	plan := Diff(before, settled)
	if _, _, err := a.try(plan, anyGeneration); err != nil {
		a.known = nil
		return nil, err
	}
	a.known.forget(before)
	a.known.remember(settled)
	return plan, nil
}
