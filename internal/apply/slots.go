package apply

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// slots is the only record of the endpoints that the kernel has in the slots of
// a frontend: render only proposes an order, and plan.Settle keeps endpoints where they
// are. If another program changes them, the kernel refuses the next change, or
// a comparison finds it.
type slots map[model.Frontend][]netip.AddrPort

// follow records a change from one state of some frontends to another.
func (s slots) follow(before, after *nft.Ruleset) {
	for _, t := range before.Tables {
		services := t.Set(nft.ServicesMap).Elements
		for i := range services {
			delete(s, services[i].Key.Frontend())
		}
	}
	eachFrontend(after, func(f model.Frontend, group []nft.Element) {
		endpoints := make([]netip.AddrPort, len(group))
		for i := range group {
			endpoints[i] = group[i].Value.Endpoint
		}
		s[f] = endpoints
	})
}

// place changes a ruleset so that the endpoints have the slots that they have in the
// kernel, and reports whether all of them are known.
func (s slots) place(r *nft.Ruleset) (ok bool) {
	ok = true
	eachFrontend(r, func(f model.Frontend, group []nft.Element) {
		known := s[f]
		if len(known) != len(group) {
			ok = false
			return
		}
		for i := range group {
			group[i].Value.Endpoint = known[i]
		}
	})
	return ok
}

// eachFrontend calls f for the endpoints of each frontend, in their slots.
func eachFrontend(r *nft.Ruleset, f func(model.Frontend, []nft.Element)) {
	for _, t := range r.Tables {
		m := t.Set(nft.EndpointsMap)
		for rest := m.Elements; len(rest) > 0; {
			var group []nft.Element
			group, rest = plan.CutFrontend(rest)
			f(group[0].Key.Frontend(), group)
		}
	}
}
