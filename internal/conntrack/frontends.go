package conntrack

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// frontends are those of one family and protocol, each with the endpoints that
// may keep their flows, sorted. They share nothing with the routing, which is
// much larger.
type frontends map[netip.AddrPort][]netip.AddrPort

// frontendsOf returns the frontends of a routing in some scopes.
func frontendsOf(r *model.Routing, scopes []scope) map[scope]frontends {
	all := make(map[scope]frontends, len(scopes))
	for _, s := range scopes {
		all[s] = make(frontends)
	}
	// The frontends of a service port share their endpoints.
	copied := make(map[*model.Endpoint][]netip.AddrPort)
	for i := range r.Routes {
		route, f := &r.Routes[i], &r.Routes[i].Frontend
		if fs := all[scope{model.FamilyOf(f.Address), f.Protocol}]; fs != nil {
			fs[netip.AddrPortFrom(f.Address, f.Port)] = addresses(route.Choice.Serving, copied)
		}
	}
	return all
}

// addresses returns the addresses of endpoints, from those copied before if
// they are there.
func addresses(endpoints []model.Endpoint, copied map[*model.Endpoint][]netip.AddrPort) []netip.AddrPort {
	if len(endpoints) == 0 {
		return nil
	}
	out, ok := copied[&endpoints[0]]
	if !ok {
		out = make([]netip.AddrPort, len(endpoints))
		for i, e := range endpoints {
			out[i] = e.Address
		}
		copied[&endpoints[0]] = out
	}
	return out
}

// and returns the frontends together with those of former ones that are gone,
// which nobody serves.
func (fs frontends) and(former frontends) frontends {
	out := make(frontends, len(fs))
	for f := range former {
		out[f] = nil
	}
	for f, serving := range fs {
		out[f] = serving
	}
	return out
}

// stale tells whether a flow goes through a frontend to what does not serve it
// (9.4).
//
// A flow that was never translated is as old as the time before the rules. If
// it is UDP and somebody serves the frontend, that is where it belongs (9.5).
// Otherwise it is not known to be ours, and to end it would help nobody.
func (fs frontends) stale(f Flow) bool {
	serving, ours := fs[f.Dialled]
	if !ours {
		return false
	}
	if _, serves := slices.BinarySearchFunc(serving, f.Answers, netip.AddrPort.Compare); serves {
		return false
	}
	return f.Answers != f.Dialled || f.Protocol == model.UDP && len(serving) > 0
}
