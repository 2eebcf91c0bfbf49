package describe

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

// FromRules describes a Service from the rules in the kernel, or returns nil if these
// have no frontend of it. The name is that of the elements' comments.
func FromRules(rs *nft.Ruleset, name model.ServiceName) *Service {
	s := &Service{From: Kernel, Namespace: name.Namespace, Name: name.Name, Unknown: []string{
		"why endpoints are left out, their nodes and weights, and the last change: only a running nftproxy or its input knows",
	}}
	var all []*served.Frontend
	for _, t := range rs.Tables {
		s.Ping = append(s.Ping, pingsIn(t, name)...)
		table := served.Read(t)
		for f, of := range table.Names() {
			if of.Port.Service == name {
				all = append(all, table.Frontend(f))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.addSettings(all)
	ports := make(map[model.PortName]*Port)
	for _, f := range all {
		if ports[f.Port] == nil {
			ports[f.Port] = &Port{Name: f.Port.Port, Protocol: f.Protocol.String()}
		}
		ports[f.Port].add(f)
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

// add adds a frontend of the service port, with its endpoints.
func (p *Port) add(f *served.Frontend) {
	p.Frontends = append(p.Frontends, Frontend{Kind: f.Kind.String(), Address: f.Target(), Inside: f.Inside.Verdict.String(), Outside: f.Outside.Verdict.String()})
	switch f.Kind {
	case model.NodePort:
		p.NodePort = f.Frontend.Port
	default:
		p.Port, p.LastPort = f.Frontend.Port, f.Last
	}
	p.merge(f.Inside, f.Outside, model.FamilyOf(f.Address))
}

// merge adds the endpoints of a frontend that are not there yet.
func (p *Port) merge(inside, outside served.Decision, f model.Family) {
	share := func(d served.Decision, a netip.AddrPort) Share {
		n := d.Of(a)
		if n == 0 {
			return Share{LeftOut: "policy Local"}
		}
		return Share{Part: float64(n) / float64(d.Slots()), Slots: n}
	}
	differ := !slices.Equal(inside.Endpoints, outside.Endpoints)
	for _, e := range slices.Concat(inside.Endpoints, outside.Endpoints) {
		i := slices.IndexFunc(p.Endpoints, func(o Endpoint) bool { return o.Address == model.EndpointText(e.Address) })
		if i < 0 {
			i = len(p.Endpoints)
			p.Endpoints = append(p.Endpoints, Endpoint{Address: model.EndpointText(e.Address), Family: f.String(), Inside: share(inside, e.Address)})
		}
		if differ {
			o := share(outside, e.Address)
			p.Endpoints[i].Outside = &o
		}
	}
}
