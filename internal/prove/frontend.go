package prove

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// frontend is what a Service asks for.
type frontend struct {
	at
	last     uint16 // of a range of ports; zero: one port
	target   uint16 // port of the endpoints of a range; zero: the one that clients dial
	kind     model.Kind
	service  *model.Service
	name     string // of the port
	onNode   bool   // a range that may be on addresses of the node
	ranged   bool   // comes from the annotation for ranges, also if it is one port
	balancer bool   // a load balancer address: the source ranges of the Service count
	cluster  set
	local    set
}

func (f *frontend) end() uint16 { return max(f.port, f.last) }

// isRange reports whether the frontend has several ports.
func (f *frontend) isRange() bool { return f.last != 0 }

func (f *frontend) extra() *model.Extras {
	if f.service.Extras == nil {
		return &model.Extras{}
	}
	return f.service.Extras
}

// usable reports whether something usable exists (3.8).
func (f *frontend) usable() bool { return len(f.cluster) > 0 }

// before orders claims to the same (4.37 to 4.40): it is negative if f wins.
func (f *frontend) before(o *frontend) int {
	return cmp.Or(
		order(f.kind == model.ClusterIP, o.kind == model.ClusterIP),
		order(f.usable(), o.usable()),
		order(f.kind != model.NodePort, o.kind != model.NodePort),
		cmp.Compare(age(f.service), age(o.service)),
		cmp.Compare(f.service.Name.Namespace, o.service.Name.Namespace),
		cmp.Compare(f.service.Name.Name, o.service.Name.Name),
	)
}

// order puts true first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// age is the time of creation; an unknown one is the youngest.
func age(s *model.Service) int64 {
	if s.Created == 0 {
		return 1 << 62
	}
	return s.Created
}

// settle finds the winners of all claims.
func (w *World) settle() {
	w.claims, w.ranges = make(map[at]*frontend), make(map[address][]*frontend)
	w.clusterIPs, w.external = make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	var ranged []*frontend
	for _, s := range w.snapshot.Services {
		for _, f := range w.asked(s) {
			switch known := w.claims[f.at]; {
			case f.isRange():
				ranged = append(ranged, f)
			case known == nil || f.before(known) < 0:
				w.claims[f.at] = f
			}
			if f.kind == model.ClusterIP {
				w.clusterIPs[f.addr] = true
			} else if f.kind != model.NodePort {
				w.external[f.addr] = true
			}
			w.relays = w.relays || f.extra().Relay != model.NoRelay
		}
	}
	w.yieldToNodePorts()
	w.settleRanges(ranged)
	for _, f := range w.claims {
		w.all = append(w.all, f)
	}
	for _, list := range w.ranges {
		w.all = append(w.all, list...)
	}
	w.families = make(map[model.Family]bool)
	for _, f := range w.all {
		w.families[familyOf(f.addr)] = true
	}
	for _, p := range slices.Concat(w.snapshot.ServiceCIDRs, w.config.LoadBalancerCIDRs) {
		w.families[familyOf(p.Addr())] = true
	}
	slices.SortFunc(w.all, func(a, b *frontend) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.port, b.port), cmp.Compare(a.last, b.last))
	})
}

// yieldToNodePorts removes addresses without endpoints where a NodePort has some (4.37).
func (w *World) yieldToNodePorts() {
	for k, f := range w.claims {
		if !w.wildcards || f.kind == model.ClusterIP || f.kind == model.NodePort || f.usable() || !w.nodePorts[f.addr] || w.clusterIPs[f.addr] {
			continue
		}
		if n := w.claims[at{address{unspecified(familyOf(f.addr)), f.protocol}, f.port}]; n != nil && n.usable() {
			delete(w.claims, k)
		}
	}
}

// settleRanges serves ranges in their order, except those that overlap a served one (1.55).
func (w *World) settleRanges(all []*frontend) {
	slices.SortStableFunc(all, func(a, b *frontend) int {
		return cmp.Or(a.before(b), cmp.Compare(a.port, b.port), cmp.Compare(a.end(), b.end()))
	})
	for _, f := range all {
		if !slices.ContainsFunc(w.ranges[f.address], func(o *frontend) bool { return o.port <= f.end() && f.port <= o.end() }) {
			w.ranges[f.address] = append(w.ranges[f.address], f)
		}
	}
}

func unspecified(f model.Family) netip.Addr {
	if f == model.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// asked returns the frontends that a Service asks for.
func (w *World) asked(s *model.Service) (out []*frontend) {
	for _, f := range model.Families {
		if len(w.config.Families) > 0 && !slices.Contains(w.config.Families, f) {
			continue
		}
		addresses, served := addressesIn(s, f)
		if !served {
			continue
		}
		if w.config.NoExternalIPs {
			maps.DeleteFunc(addresses, func(_ netip.Addr, kind model.Kind) bool { return kind == model.ExternalIP })
		}
		var balancers []netip.Addr
		if s.External != nil {
			balancers = s.External.LoadBalancerIPs
		}
		for i := range s.Ports {
			out = append(out, w.askedByPort(s, &s.Ports[i], f, addresses, balancers)...)
		}
		out = append(out, w.askedByRanges(s, f, addresses, balancers)...)
	}
	return out
}

func addressesOf(list []netip.Addr, f model.Family) (out []netip.Addr) {
	for _, a := range list {
		if familyOf(a) == f {
			out = append(out, a)
		}
	}
	return out
}

func (w *World) askedByPort(s *model.Service, p *model.ServicePort, f model.Family, addresses map[netip.Addr]model.Kind, balancers []netip.Addr) (out []*frontend) {
	endpoints := w.endpoints(s, p.Name, p.Protocol, f)
	base := frontend{service: s, name: p.Name, cluster: w.clusterSet(s, endpoints), local: w.localSet(s, endpoints)}
	for a, kind := range addresses {
		one := base
		one.at, one.kind, one.balancer = at{address{a, p.Protocol}, p.Port}, kind, slices.Contains(balancers, a)
		out = append(out, &one)
	}
	if p.NodePort == 0 || s.NoClusterIP {
		return out
	}
	for a := range w.nodePorts {
		one := base
		if one.at, one.kind = (at{address{a, p.Protocol}, p.NodePort}), model.NodePort; w.wildcards {
			one.addr = unspecified(f)
		}
		if familyOf(a) == f && !(w.wildcards && slices.ContainsFunc(out, func(o *frontend) bool { return o.at == one.at })) {
			out = append(out, &one)
		}
	}
	return out
}
