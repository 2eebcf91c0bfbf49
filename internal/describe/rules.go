package describe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// FromRules describes a Service from the rules in the kernel, or returns nil if these
// have no frontend of it. The name is that of the elements' comments.
func FromRules(rs *nft.Ruleset, name model.ServiceName) *Service {
	s := &Service{From: Kernel, Namespace: name.Namespace, Name: name.Name, Unknown: []string{
		"why endpoints are left out, their nodes and weights, and the last change: only a running nftproxy or its input knows",
	}}
	ports := make(map[model.PortName]*Port)
	for _, t := range rs.Tables {
		s.Ping = append(s.Ping, pingsIn(t, name)...)
		r := rulesOf{table: t, lanes: plan.NewLanes(t), timeouts: t.AffinityTimeouts()}
		for _, of := range nft.ServiceMaps {
			services := t.Set(of)
			if services == nil {
				continue // a foreign table of our name, or no range
			}
			for i := range services.Elements {
				e := &services.Elements[i]
				port, kind := nft.ParseComment(e.Comment)
				if port.Service != name {
					continue
				}
				port.Protocol = e.Key.Protocol
				if ports[port] == nil {
					ports[port] = &Port{Name: port.Port, Protocol: port.Protocol.String()}
				}
				r.add(s, ports[port], t.FrontendOf(services, e.Key), e, kind)
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	for _, p := range ports {
		slices.SortStableFunc(p.Frontends, func(a, b Frontend) int { return cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind)) })
		s.Ports = append(s.Ports, *p)
	}
	slices.SortFunc(s.Ports, func(a, b Port) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol)) })
	return s
}

func kindOrder(kind string) int {
	return slices.Index([]string{model.ClusterIP.String(), model.LoadBalancerIP.String(), model.ExternalIP.String(), model.NodePort.String()}, kind)
}

// rulesOf is a table of the kernel.
type rulesOf struct {
	table    *nft.Table
	lanes    *plan.Lanes
	timeouts map[model.Frontend]time.Duration
}

// add adds the frontend of an element in the map of all frontends.
func (r *rulesOf) add(s *Service, p *Port, key model.Frontend, e *nft.Element, kind model.Kind) {
	f := Frontend{Kind: kind.String(), Address: key.Target()}
	services, locals := nft.MapsOf(key)
	inside := r.slots(services, key)
	outside := inside
	f.Inside = r.verdict(e, inside)
	f.Outside = f.Inside
	if local := r.table.Set(locals); local != nil {
		if o, ok := local.Find(key); ok {
			outside = r.slots(locals, key)
			f.Outside, s.ExternalPolicy = r.verdict(o, outside), model.PolicyLocal.String()
		}
	}
	if t := r.timeouts[key]; t > 0 {
		s.AffinitySeconds = t.Seconds()
	}
	if limits := limitsOf(r.table.Limits(key)); len(limits) > 0 {
		s.Limits = limits
	}
	switch kind {
	case model.NodePort:
		p.NodePort = key.Port
	default:
		p.Port, p.LastPort = key.Port, key.Last
	}
	p.Frontends = append(p.Frontends, f)
	p.merge(inside, outside, model.FamilyOf(key.Address))
}

// slots returns how many slots each endpoint of a frontend has in the lane of a map.
func (r *rulesOf) slots(set string, f model.Frontend) map[netip.AddrPort]int {
	choice, ok := r.lanes.Of(set, f)
	if !ok {
		return nil
	}
	out := make(map[netip.AddrPort]int)
	for _, e := range r.table.Slots(f) {
		if choice.Has(e.Key.Slot) {
			out[e.Value.Endpoint]++
		}
	}
	return out
}

func (r *rulesOf) verdict(e *nft.Element, slots map[netip.AddrPort]int) string {
	switch {
	case r.lanes.Drops(e):
		return model.Drop.String()
	case len(slots) == 0:
		return model.Reject.String()
	}
	return model.Forward.String()
}

// merge adds the endpoints of a frontend that are not there yet.
func (p *Port) merge(inside, outside map[netip.AddrPort]int, f model.Family) {
	total := func(slots map[netip.AddrPort]int) (n int) {
		for _, one := range slots {
			n += one
		}
		return max(n, 1)
	}
	all := make(map[netip.AddrPort]bool)
	for _, slots := range []map[netip.AddrPort]int{inside, outside} {
		for a := range slots {
			all[a] = true
		}
	}
	var sorted []netip.AddrPort
	for a := range all {
		sorted = append(sorted, a)
	}
	slices.SortFunc(sorted, netip.AddrPort.Compare)
	share := func(slots map[netip.AddrPort]int, a netip.AddrPort) Share {
		if slots[a] == 0 {
			return Share{LeftOut: "policy Local"}
		}
		return Share{Part: float64(slots[a]) / float64(total(slots)), Slots: slots[a]}
	}
	differ := !maps.Equal(inside, outside)
	for _, a := range sorted {
		i := slices.IndexFunc(p.Endpoints, func(e Endpoint) bool { return e.Address == model.EndpointText(a) })
		if i < 0 {
			i = len(p.Endpoints)
			p.Endpoints = append(p.Endpoints, Endpoint{Address: model.EndpointText(a), Family: f.String(), Inside: share(inside, a)})
		}
		if differ {
			o := share(outside, a)
			p.Endpoints[i].Outside = &o
		}
	}
}
