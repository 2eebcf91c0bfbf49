package report

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

// fromRules describes a Service from the rules in the kernel, or returns nil if these have no frontend of it, and whether
// they redirect connections to it. The name is the one in the elements' comments.
func fromRules(rs *nft.Ruleset, name model.ServiceName) (_ *api.Description, relayed bool) {
	s := &api.Description{From: api.FromKernel, Namespace: name.Namespace, Name: name.Name, Unknown: []string{
		"why endpoints are left out, their nodes and weights, and the last change: only a running nftproxy or its input knows",
	}}
	var all []*served.Frontend
	for _, t := range rs.Tables {
		s.Ping = append(s.Ping, pingsIn(t, name)...)
		table := served.Read(t)
		for of := range table.Names() {
			if of.Port.Service == name {
				all = append(all, table.Frontend(of.Frontend))
			}
		}
	}
	if len(all) == 0 {
		return nil, false
	}
	addSettings(s, all)
	ports := make(map[model.PortName]*api.DescribedPort)
	for _, f := range all {
		if ports[f.Port] == nil {
			ports[f.Port] = &api.DescribedPort{Name: f.Port.Port, Protocol: f.Protocol.String()}
		}
		addFrontend(ports[f.Port], f)
		relayed = relayed || f.Relayed
	}
	for _, p := range ports {
		slices.SortStableFunc(p.Frontends, func(a, b api.DescribedFrontend) int { return cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind)) })
		s.Ports = append(s.Ports, *p)
	}
	slices.SortFunc(s.Ports, func(a, b api.DescribedPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
	return s, relayed
}

func kindOrder(kind string) int {
	return slices.Index([]string{model.ClusterIP.String(), model.LoadBalancerIP.String(), model.ExternalIP.String(), model.NodePort.String()}, kind)
}

func addFrontend(p *api.DescribedPort, f *served.Frontend) {
	p.Frontends = append(p.Frontends, api.DescribedFrontend{Kind: f.Kind.String(), Address: f.Target(), Inside: f.Inside.Verdict.String(), Outside: f.Outside.Verdict.String()})
	switch f.Kind {
	case model.NodePort:
		p.NodePort = f.Frontend.Port
	default:
		p.Port, p.LastPort = f.Frontend.Port, f.Last
	}
	mergeEndpoints(p, f.Inside, f.Outside, model.FamilyOf(f.Address))
}

// mergeEndpoints adds the endpoints of a frontend that are not there yet.
func mergeEndpoints(p *api.DescribedPort, inside, outside served.Decision, f model.Family) {
	share := func(d served.Decision, a netip.AddrPort) api.Share {
		n := d.Of(a)
		if n == 0 {
			return api.Share{LeftOut: "policy Local"}
		}
		return api.Share{Part: float64(n) / float64(d.Slots()), Slots: n}
	}
	differ := !slices.Equal(inside.Endpoints, outside.Endpoints)
	for _, e := range slices.Concat(inside.Endpoints, outside.Endpoints) {
		i := slices.IndexFunc(p.Endpoints, func(o api.DescribedEndpoint) bool { return o.Address == model.EndpointText(e.Address) })
		if i < 0 {
			i = len(p.Endpoints)
			p.Endpoints = append(p.Endpoints, api.DescribedEndpoint{Address: model.EndpointText(e.Address), Family: f.String(), Inside: share(inside, e.Address)})
		}
		if differ {
			o := share(outside, e.Address)
			p.Endpoints[i].Outside = &o
		}
	}
}

func pingsOf(echoes []model.ViewedEcho) (out []api.Ping) {
	for _, e := range echoes {
		p := api.Ping{Address: e.Address.String(), Inside: e.Inside, Outside: e.Outside}
		if e.Winner != nil {
			p.DecidedBy = e.Winner.Service.Name.String()
		}
		out = append(out, p)
	}
	return out
}

// pingsIn returns the addresses of a Service that the rules of a table answer echo requests
// for.
func pingsIn(t *nft.Table, name model.ServiceName) (out []api.Ping) {
	answered, inside := t.Set(nft.EchoSet), t.Set(nft.EchoInsideSet)
	if answered == nil || inside == nil {
		return nil
	}
	for i := range answered.Elements {
		e := &answered.Elements[i]
		if port, _ := nft.ParseComment(e.Comment); port.Service != name {
			continue
		}
		_, only := inside.Find(e.Key.Frontend())
		out = append(out, api.Ping{Address: e.Key.Address.String(), Inside: true, Outside: !only})
	}
	slices.SortFunc(out, func(a, b api.Ping) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	return out
}
