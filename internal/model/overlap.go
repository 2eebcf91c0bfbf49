package model

import (
	"maps"
	"net/netip"
	"slices"
)

// overlaps finds NodePorts with the unspecified address that compete with an address of a
// Service, which the node has, for the same port (4.37). They are different frontends, so
// claims do not show it.
type overlaps map[Frontend]map[Frontend]struct{} // with addresses of Services, by OnNode

// isExternal reports whether a Service names the address of a route, and a node may
// have it.
func (r *Route) isExternal() bool { return r.Kind == ExternalIP || r.Kind == LoadBalancerIP }

// recordClaim adds or removes a frontend that is claimed with an external address.
func (o overlaps) recordClaim(f Frontend, claimed bool) {
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

func (r *frontends) recordOverlap(route *Route) {
	f := route.Frontend
	switch {
	case !r.base.locality.Wildcards || f.IsRange(): // any port wins over a range
	case route.Kind == NodePort:
		r.reports.stale = r.reports.stale || len(r.overlaps[f]) > 0
	case route.isExternal():
		winner := r.winners[f]
		claimed := winner != nil && (winner.isExternal() || r.losers[f].anyRoute((*Route).isExternal))
		r.overlaps.recordClaim(f, claimed)
		if _, ok := r.winners[f.OnNode()]; ok && r.onNode(f.Address) {
			r.reports.stale = true
		}
	}
}

// onNode reports whether an address serves NodePorts with the unspecified address.
func (r *frontends) onNode(a netip.Addr) bool { return contains(r.NodePortAddresses(), a) }

// settleOverlaps decides which of the touched frontends, and of those that compete with a
// touched NodePort, are left to NodePorts. It adds the previous routes to touched; nil: all
// frontends are new.
func (r *frontends) settleOverlaps(touched map[Frontend]*Route) {
	if len(r.overlaps) == 0 && len(r.yielding) == 0 {
		return
	}
	if touched == nil {
		for w := range r.overlaps {
			r.settleOverlap(w, nil)
		}
		return
	}
	for _, f := range slices.Collect(maps.Keys(touched)) {
		r.settleOverlap(f, touched)
	}
}

// settleOverlap decides about a frontend, and about those that compete with it if it is a
// NodePort.
func (r *frontends) settleOverlap(f Frontend, touched map[Frontend]*Route) {
	for o := range r.overlaps[f] {
		r.settleYielding(o, touched)
	}
	r.settleYielding(f, touched)
}

// settleYielding decides whether a frontend with an address of the node is left to a NodePort with the
// unspecified address, because it has no endpoint, and the NodePort has one (4.40).
func (r *frontends) settleYielding(f Frontend, touched map[Frontend]*Route) {
	_, before := r.yielding[f]
	own, node := r.winners[f], r.winners[f.OnNode()]
	now := own != nil && node != nil && own.isExternal() && r.onNode(f.Address) &&
		own.Inside().Verdict != Forward && node.Inside().Verdict == Forward
	if now != before {
		r.noteRoute(f, touched)
		r.reports.stale = true
	}
	switch {
	case now:
		r.yielding[f] = struct{}{}
	case before:
		delete(r.yielding, f)
	default:
		return
	}
	if own != nil { // its notice names the NodePort
		r.reports.markStale(own.Service.Name)
	}
	for loser := range r.losers[f].eachRoute {
		r.reports.markStale(loser.Service.Name)
	}
}

// touchOverlaps notes the routes of frontends that compete with NodePorts on addresses that
// the node gets or loses. Both lists are sorted.
func (r *frontends) touchOverlaps(before, after []netip.Addr, touched map[Frontend]*Route) {
	for _, frontends := range r.overlaps {
		for f := range frontends {
			if contains(before, f.Address) != contains(after, f.Address) {
				r.noteRoute(f, touched)
			}
		}
	}
}

// overlapNotices reports the NodePorts that an address of the node does not serve.
func (r *frontends) overlapNotices() []Notice {
	var out []Notice
	for w, frontends := range r.overlaps {
		loser := r.winners[w]
		if loser == nil {
			continue
		}
		for f := range frontends {
			if winner := r.winnerOf(f); winner != nil && winner.PortName() != loser.PortName() && r.onNode(f.Address) {
				out = append(out, conflictNotice(f, loser, winner))
			}
		}
	}
	return out
}
