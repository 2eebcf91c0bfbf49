package model

import (
	"net/netip"
	"slices"
)

// overlaps finds NodePorts with the unspecified address that an address of the node
// does not serve, because a Service has that address and the same port (4.37). They
// are different frontends, so claims do not show it.
type overlaps map[Frontend]map[Frontend]struct{} // with addresses of Services, by OnNode

// external reports whether a Service names the address of a route, and a node may
// have it.
func (r *Route) external() bool { return r.Kind == ExternalIP || r.Kind == LoadBalancerIP }

// note adds or removes a frontend that is claimed with an external address.
func (o overlaps) note(f Frontend, claimed bool) {
	w := f.OnNode()
	if claimed {
		if o[w] == nil {
			o[w] = make(map[Frontend]struct{})
		}
		o[w][f] = struct{}{}
		return
	}
	if delete(o[w], f); len(o[w]) == 0 {
		delete(o, w)
	}
}

// overlap records a route that was claimed or withdrawn.
func (r *Router) overlap(route *Route) {
	f := route.Frontend
	switch {
	case !r.base.locality.Wildcards:
	case route.Kind == NodePort:
		r.staleNotices = r.staleNotices || len(r.overlaps[f]) > 0
	case route.external():
		c := r.claims[f]
		claimed := c.winner != nil && (c.winner.external() || slices.ContainsFunc(c.losers, (*Route).external))
		r.overlaps.note(f, claimed)
		if _, ok := r.claims[f.OnNode()]; ok && r.onNode(f.Address) {
			r.staleNotices = true
		}
	}
}

// onNode reports whether an address serves NodePorts with the unspecified address.
func (r *Router) onNode(a netip.Addr) bool { return contains(r.NodePortAddresses(), a) }

// overlapNotices reports the NodePorts that an address of the node does not serve.
func (r *Router) overlapNotices() []Notice {
	var out []Notice
	for w, frontends := range r.overlaps {
		loser := r.claims[w].winner
		if loser == nil {
			continue
		}
		for f := range frontends {
			if winner := r.claims[f].winner; winner.Port != loser.Port && r.onNode(f.Address) {
				out = append(out, conflict(f, loser, winner))
			}
		}
	}
	return out
}
