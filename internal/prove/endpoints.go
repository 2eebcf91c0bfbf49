package prove

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// endpoint is a server of a service port.
type endpoint struct {
	at     netip.AddrPort
	host   *model.Host
	weight float64
}

// set is endpoints that take new connections, with their shares, which add up to 1.
type set []endpoint

// endpoints returns the endpoints of a service port (2.6, 2.17).
func (w *World) endpoints(s *model.Service, name string, p model.Protocol, f model.Family) (out []endpoint) {
	cilium := false
	for _, sl := range w.slices[s.Name] {
		for _, port := range sl.Ports {
			if sl.Family != f || port.Name != name || port.Protocol != p {
				continue
			}
			cilium = cilium || sl.CiliumWeight
			for i := range sl.Hosts {
				out = append(out, endpoint{at: netip.AddrPortFrom(sl.Hosts[i].Address, port.Port), host: &sl.Hosts[i]})
			}
		}
	}
	return unique(out, cilium)
}

// unique keeps one record for each address (2.18), and gives it its weight (3.21, 3.50).
func unique(all []endpoint, cilium bool) (out []endpoint) {
	best := make(map[netip.AddrPort]int, len(all))
	for _, e := range all {
		e.weight = float64(e.host.Weight)
		if e.host.Weight == 0 && cilium {
			e.weight = model.CiliumDefault
		} else if e.host.Weight == 0 {
			e.weight = 1
		}
		if i, ok := best[e.at]; !ok {
			best[e.at] = len(out)
			out = append(out, e)
		} else if preferred(e, out[i]) < 0 {
			out[i] = e
		}
	}
	return out
}

// preferred orders records of one address.
func preferred(a, b endpoint) int {
	x, y := a.host, b.host
	names := func(h *model.Host) string {
		return strings.Join([]string{h.Place.Node(), strings.Join(h.Place.ForNodes(), ","), strings.Join(h.Place.ForZones(), ","), h.Place.Zone()}, "\x00")
	}
	return cmp.Or(order(!x.Terminating, !y.Terminating), order(x.Ready, y.Ready), order(x.Serving, y.Serving), order(!x.Failing, !y.Failing),
		cmp.Compare(names(x), names(y)), order(!x.Drain, !y.Drain), cmp.Compare(b.weight, a.weight), cmp.Compare(x.Priority, y.Priority))
}

// keep returns the endpoints of which a condition holds.
func keep(all []endpoint, holds func(*model.Host) bool) (out []endpoint) {
	for _, e := range all {
		if holds(e.host) {
			out = append(out, e)
		}
	}
	return out
}

// usable returns the endpoints that can take connections: the ready ones, or else those that are
// terminating and still serving (3.4 to 3.7), that pass their health check (3.22), and of these the
// ones of the first priority (3.23). isReady says which of the two they are.
func usable(s *model.Service, all []endpoint) (out []endpoint, isReady bool) {
	all = keep(all, func(h *model.Host) bool { return !h.Drain })
	passing := keep(all, func(h *model.Host) bool { return !h.Failing })
	for _, from := range [][]endpoint{passing, all} {
		for _, ready := range []bool{true, false} {
			out = keep(from, func(h *model.Host) bool { return h.Ready && ready || !ready && !h.Ready && h.Terminating && h.Serving })
			if len(out) > 0 {
				return firstPriority(out), ready
			}
		}
		if s.Check != nil && s.Check.AllFailing == model.RejectAll {
			break
		}
	}
	return nil, false
}

func firstPriority(all []endpoint) []endpoint {
	first := all[0].host.Priority
	for _, e := range all {
		first = min(first, e.host.Priority)
	}
	return keep(all, func(h *model.Host) bool { return h.Priority == first })
}

// clusterSet returns the endpoints for policy Cluster.
func (w *World) clusterSet(s *model.Service, all []endpoint) set {
	out, ready := usable(s, all)
	if !ready {
		return w.started(s, out)
	}
	byNode := hinted(out, model.Place.ForNodes, w.node.Name)
	if byNode != nil { // 3.11
		return w.started(s, byNode)
	}
	byZone := hinted(out, model.Place.ForZones, w.node.Zone)
	if floor := w.floor(s, out, byZone); floor != nil {
		return floor
	}
	if byZone != nil { // 3.12
		out = byZone
	}
	return w.started(s, out)
}

// hinted returns the endpoints whose hints name a node or a zone, if all have hints and one does;
// nil: the hints do not count (3.13).
func hinted(all []endpoint, hints func(model.Place) []string, name string) []endpoint {
	if name == "" || slices.ContainsFunc(all, func(e endpoint) bool { return len(hints(e.host.Place)) == 0 }) {
		return nil
	}
	return keep(all, func(h *model.Host) bool { return slices.Contains(hints(h.Place), name) })
}

// isHere reports whether an endpoint is local (2.15).
func (w *World) isHere(h *model.Host) bool {
	return h.Place.Node() != "" && h.Place.Node() == w.node.Name
}

// localSet returns the endpoints for policy Local (3.7).
func (w *World) localSet(s *model.Service, all []endpoint) set {
	out, _ := usable(s, keep(all, w.isHere))
	return w.started(s, out)
}

// shares turns weights into shares.
func shares(all []endpoint) set {
	sum := 0.0
	for _, e := range all {
		sum += e.weight
	}
	out := slices.Clone(all)
	for i := range out {
		out[i].weight /= sum
	}
	return out
}
