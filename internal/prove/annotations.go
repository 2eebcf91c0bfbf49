package prove

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// What annotations of Services change.

// started gives endpoints that start slowly a part of their weight (3.68), unless all have the
// same one (3.71), and returns the shares.
func (w *World) started(s *model.Service, all []endpoint) set {
	if s.Extras == nil || len(s.Extras.Starting) == 0 {
		return shares(all)
	}
	parts := make(map[netip.AddrPort]uint8)
	for _, st := range s.Extras.Starting {
		parts[st.Endpoint] = st.Part
	}
	out := slices.Clone(all)
	for i := range out {
		// A Service with ranges has an entry for all ports of an endpoint beside those of its ports.
		part := cmp.Or(parts[out[i].at], parts[netip.AddrPortFrom(out[i].at.Addr(), 0)], model.StartParts)
		out[i].weight *= float64(part) / model.StartParts
	}
	return shares(out)
}

// floor returns the endpoints with their shares where a zone floor counts (3.61 to 3.63); nil: it
// does not. byZone are those whose hints name the zone, if zone hints count.
func (w *World) floor(s *model.Service, all, byZone []endpoint) set {
	if s.Extras == nil || s.Extras.ZoneFloor == 0 || w.node.Zone == "" {
		return nil
	}
	inZone := func(h *model.Host) bool {
		if byZone != nil {
			return slices.Contains(h.Place.ForZones(), w.node.Zone)
		}
		return h.Place.Zone() == w.node.Zone || w.isHere(h)
	}
	own, sum := 0.0, 0.0
	for _, e := range all {
		sum += e.weight
		if inZone(e.host) {
			own += e.weight
		}
	}
	part := 100 * own / sum / float64(s.Extras.ZoneFloor) // of the connections that stay
	switch {
	case part >= 1:
		return w.started(s, keep(all, inZone))
	case own == 0:
		return w.started(s, all)
	}
	out := slices.Clone(all)
	for i := range out {
		if inZone(out[i].host) {
			out[i].weight *= part / own
		} else {
			out[i].weight *= (1 - part) / (sum - own)
		}
	}
	return w.started(s, out)
}

// askedByRanges returns the ranges of ports of a Service (1.50 to 1.57).
func (w *World) askedByRanges(s *model.Service, f model.Family, addresses map[netip.Addr]model.Kind, balancers []netip.Addr) (out []*frontend) {
	if s.Extras == nil {
		return nil
	}
	for _, p := range s.Extras.Ranges {
		endpoints := w.hosts(s, f, p.Target)
		base := frontend{service: s, name: p.Name, last: p.Last, target: p.Target, onNode: p.OnNode, ranged: true,
			cluster: w.clusterSet(s, endpoints), local: w.localSet(s, endpoints)}
		handsOutNodes := s.External != nil && slices.ContainsFunc(s.External.LoadBalancerIPs, w.isOwn)
		for a, kind := range addresses {
			one := base
			one.at, one.kind, one.balancer = at{address{a, p.Protocol}, p.Port}, kind, slices.Contains(balancers, a)
			if !p.OnNode && (w.isOwn(a) || one.balancer && handsOutNodes) { // 1.54
				continue
			}
			out = append(out, &one)
		}
	}
	return out
}

// isOwn reports whether an address is known to be one of the node.
func (w *World) isOwn(a netip.Addr) bool { return w.isLocal(a) || slices.Contains(w.own, a) }

// hosts returns all hosts of a Service, each once (1.57).
func (w *World) hosts(s *model.Service, f model.Family, port uint16) (all []endpoint) {
	cilium := false
	for _, sl := range w.slices[s.Name] {
		if sl.Family != f {
			continue
		}
		cilium = cilium || sl.CiliumWeight
		for i := range sl.Hosts {
			all = append(all, endpoint{at: netip.AddrPortFrom(sl.Hosts[i].Address, port), host: &sl.Hosts[i]})
		}
	}
	return unique(all, cilium)
}

// admits reports whether lists of clients let a source connect (4.30 to 4.34, 4.75 to 4.79).
func (w *World) admits(f *frontend, source netip.Addr) bool {
	family := familyOf(source)
	primary, known := w.primary(family)
	in := func(list []netip.Prefix) bool {
		// The address of the frontend counts as the node (4.33).
		return contains(list, source) || source == f.addr && known && contains(list, primary)
	}
	if f.balancer && f.service.External != nil {
		ranges := ofFamily(f.service.External.SourceRanges, family)
		unlimited := len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() == 0 }) // 1.24, 1.25
		if !unlimited && !in(ranges) {
			return false
		}
	}
	sources := f.extra().Sources
	return sources == nil || (!sources.Limited || in(sources.Allowed)) && !in(sources.Denied)
}

// lists returns all ranges of clients that a frontend has.
func (f *frontend) lists() (out []netip.Prefix) {
	if f.balancer && f.service.External != nil {
		out = append(out, f.service.External.SourceRanges...)
	}
	if s := f.extra().Sources; s != nil {
		out = append(append(out, s.Allowed...), s.Denied...)
	}
	return ofFamily(out, familyOf(f.addr))
}

// limited reports whether the connections to a frontend are limited (4.85 to 4.93).
func (w *World) limited(f *frontend) bool {
	return !w.config.NoLimits && f.extra().Limits != model.Limits{}
}

// limitsClients reports whether each client of a frontend has a limit of its own (4.87).
func (w *World) limitsClients(f *frontend) bool {
	return f != nil && w.limited(f) && (f.extra().Limits.RatePerClient != model.Rate{} || f.extra().Limits.ConnectionsPerClient > 0)
}

// settlePings finds which frontend decides about echo requests to an address (4.65 to 4.70).
func (w *World) settlePings() {
	w.pings = make(map[netip.Addr]*frontend)
	if !w.config.AnswerPing {
		return
	}
	for _, s := range w.snapshot.Services {
		for _, f := range w.asked(s) {
			if _, answers := w.answersFrom(familyOf(f.addr)); !answers || !w.mayAnswer(f) {
				continue
			}
			if known := w.pings[f.addr]; known == nil || w.pingsBefore(f, known) {
				w.pings[f.addr] = f
			}
		}
	}
}

// mayAnswer reports whether echo requests to a frontend may be answered (4.66).
func (w *World) mayAnswer(f *frontend) bool {
	switch {
	case f.kind == model.NodePort:
		return false
	case f.kind == model.ClusterIP:
		return true
	case slices.Contains(w.own, f.addr):
		return false
	}
	external := model.External{}
	if f.service.External != nil {
		external = *f.service.External
	}
	serves := func(a netip.Addr) bool {
		return slices.Contains(external.ExternalIPs, a) || slices.Contains(external.LoadBalancerIPs, a) || slices.Contains(f.service.ClusterIPs, a)
	}
	if !f.service.Balance && slices.ContainsFunc(w.own, serves) {
		return false
	}
	return len(w.config.LoadBalancerCIDRs) == 0 || contains(w.config.LoadBalancerCIDRs, f.addr)
}

// pingsBefore orders the Services of an address (4.70).
func (w *World) pingsBefore(a, b *frontend) bool {
	if a.kind == model.ClusterIP || b.kind == model.ClusterIP {
		return a.kind == model.ClusterIP && (b.kind != model.ClusterIP || w.answersAs(a) > w.answersAs(b) || w.answersAs(a) == w.answersAs(b) && a.before(b) < 0)
	}
	if x, y := w.answersAs(a), w.answersAs(b); x != y {
		return x > y
	}
	return a.before(b) < 0
}

// answersAs is higher for frontends of which more clients get an answer.
func (w *World) answersAs(f *frontend) (n int) {
	if len(w.inside(f)) > 0 {
		n += 4
	}
	if len(w.outside(f)) > 0 {
		n += 2
	}
	if sources := f.extra().Sources; len(f.lists()) == 0 && (sources == nil || !sources.Limited) {
		n++
	}
	return n
}

// answersFrom returns the address to which echo requests are translated (4.69).
func (w *World) answersFrom(f model.Family) (netip.Addr, bool) {
	a, known := w.primary(f)
	if known && (len(w.config.InterfaceAddresses) == 0 || slices.Contains(w.config.InterfaceAddresses, a)) {
		return a, true
	}
	for _, a := range w.config.InterfaceAddresses {
		if familyOf(a) == f && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return a, true
		}
	}
	return netip.Addr{}, false
}
