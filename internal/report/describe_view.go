package report

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// FromView describes a Service from its objects.
func FromView(v *model.View) *api.Description {
	s := &api.Description{
		Namespace: v.Service.Name.Namespace, Name: v.Service.Name.Name, Node: v.Node.Name, Zone: v.Node.Zone,
		Balance: v.Service.Balance, Ports: []api.DescribedPort{},
	}
	all := make([]*served.Frontend, len(v.Claims))
	for i, c := range v.Claims {
		all[i] = served.Of(c.Route, v.Scheduler)
	}
	addSettings(s, all)
	s.AffinitySeconds, s.Scheduler = v.Service.AffinityTimeout.Seconds(), v.Scheduler.String() // also of ranges of ports
	addLists(s, v.Service)
	addPolicies(s, v)
	s.HealthCheck = healthOf(v.Health)
	s.Ping = pingsOf(v.Echoes)
	s.Stated = setting.StatedOf(v.Service)
	for _, slice := range v.Slices {
		s.Slices = append(s.Slices, slice.Name)
	}
	slices.Sort(s.Slices)
	s.Slices = slices.Compact(s.Slices) // a drained port has a slice of its own
	for _, n := range v.Notices {
		s.Notices = append(s.Notices, n.Message)
	}
	if v.Scheduler.IsMaglev() {
		s.Maglev = maglevOf(v)
	}
	for claims := v.Claims; len(claims) > 0; {
		n := 1
		for n < len(claims) && claims[n].Route.PortName() == claims[0].Route.PortName() {
			n++
		}
		s.Ports = append(s.Ports, portOf(v, claims[:n], all[:n]))
		claims, all = claims[n:], all[n:]
	}
	s.Notices = append(s.Notices, model.LoopTexts(v.Loops, v.Service.Words())...)
	if text := usedInVain(s); text != "" {
		s.Notices = append(s.Notices, text)
	}
	return s
}

func addPolicies(s *api.Description, v *model.View) {
	if !v.Service.NoClusterIP {
		s.InternalPolicy = v.Service.InternalPolicy.String()
	}
	if slices.ContainsFunc(v.Claims, func(c model.ViewedClaim) bool { return c.Route.Kind != model.ClusterIP }) {
		s.ExternalPolicy = v.Service.ExternalPolicy.String()
	}
}

// addLists replaces the lists of clients by the object's, which also has ranges of a family
// without a frontend.
func addLists(s *api.Description, of *model.Service) {
	if of.External != nil {
		s.SourceRanges = of.External.SourceRanges
	}
	if sources := of.Extra().Sources; sources != nil {
		s.AllowedSources, s.DeniedSources = nil, sources.Denied
		if sources.Limited {
			s.AllowedSources = append([]netip.Prefix{}, sources.Allowed...) // not nil
		}
	}
}

func healthOf(h *model.HealthCheck) *api.HealthCheck {
	if h == nil {
		return nil
	}
	out := &api.HealthCheck{Port: h.Port, Endpoints: make(map[string]int)}
	for f, n := range h.Endpoints {
		out.Endpoints[f.String()] = n
	}
	return out
}

// maglevOf returns the table of the service port with the most endpoints.
func maglevOf(v *model.View) *api.Maglev {
	endpoints := 0
	for _, c := range v.Claims {
		endpoints = max(endpoints, len(c.Route.Inside().Endpoints), len(c.Route.Outside().Endpoints))
	}
	return &api.Maglev{Slots: v.Service.MaglevSize(endpoints), Note: v.Service.MaglevNote(endpoints)}
}

// portOf describes the service port of some claims, and how the node serves each.
func portOf(v *model.View, claims []model.ViewedClaim, all []*served.Frontend) api.DescribedPort {
	first := claims[0].Route
	p := api.DescribedPort{Name: first.Port.Name, Protocol: first.Port.Protocol.String(), Port: first.Port.Port, LastPort: first.Frontend.Last, NodePort: first.Port.NodePort}
	byFamily := make(map[model.Family][]*served.Frontend)
	routes := make([]*model.Route, len(claims))
	for i, c := range claims {
		routes[i] = c.Route
		p.Frontends = append(p.Frontends, frontendOf(c, all[i]))
		f := model.FamilyOf(all[i].Address)
		byFamily[f] = append(byFamily[f], all[i])
	}
	for _, f := range model.Families {
		if same := byFamily[f]; len(same) > 0 {
			p.Endpoints = append(p.Endpoints, endpointsOf(v, same, f)...)
			p.ZoneFloors = append(p.ZoneFloors, zoneFloorOf(v, same, f)...)
		}
	}
	starting := startingOf(time.Now(), routes...)
	for i := range p.Endpoints {
		p.Endpoints[i].Starting = starting[p.Endpoints[i].AddrPort()]
	}
	return p
}

func frontendOf(c model.ViewedClaim, s *served.Frontend) api.DescribedFrontend {
	f := api.DescribedFrontend{Kind: s.Kind.String(), Address: s.Target()}
	if c.Winner != nil {
		f.ServedBy = c.Winner.PortName().String()
		return f
	}
	f.Inside, f.Outside = s.Inside.Verdict.String(), s.Outside.Verdict.String()
	if c.Behind.Port != 0 {
		f.ConnectsTo = netip.AddrPortFrom(c.Behind.Address, c.Behind.Port).String()
	}
	for _, loser := range c.Losers {
		f.AlsoClaimed = append(f.AlsoClaimed, loser.PortName().String())
	}
	slices.Sort(f.AlsoClaimed)
	return f
}

// endpointsOf describes the endpoints of a service port in a family, with its frontends there.
// Shares inside hold for the first frontend, which is the ClusterIP if there is one.
func endpointsOf(v *model.View, frontends []*served.Frontend, f model.Family) []api.DescribedEndpoint {
	first, other := frontends[0], (*served.Frontend)(nil) // other has clients outside
	for _, o := range frontends {
		if o.Kind != model.ClusterIP && (other == nil || o.ExternalPolicy == model.PolicyLocal) {
			other = o
		}
	}
	all := model.Endpoints(first.Port, f, v.Slices)
	inside := model.NewSelection(v.Service, all, v.Node, first.InternalPolicy)
	outside := inside
	if other != nil {
		outside = model.NewSelection(v.Service, all, v.Node, other.ExternalPolicy)
	}
	var out []api.DescribedEndpoint
	for _, e := range all {
		d := endpointOf(e, f)
		d.Name = v.Service.NameOf(e.Host.Address)
		d.Checked = checkedOf(v, e.Host)
		d.Inside = shareOf(e, first.Inside, v.Reason(inside, e.Host))
		if other != nil && first.InternalPolicy != other.ExternalPolicy {
			share := shareOf(e, other.Outside, v.Reason(outside, e.Host))
			d.Outside = &share
		}
		out = append(out, d)
	}
	for _, o := range model.NotCandidates(first.Port, f, v.Slices) {
		if o.Endpoint.Port() == 0 { // the others have an entry, in this family or another one
			out = append(out, api.DescribedEndpoint{Address: o.Endpoint.Addr().String(), Family: f.String(), Inside: api.Share{LeftOut: o.Reason}})
		}
	}
	return out
}

// zoneFloorOf says how the zone floor applies to a service port in a family: to its first
// frontend with policy Cluster, or to none. There may be none.
func zoneFloorOf(v *model.View, frontends []*served.Frontend, f model.Family) []api.ZoneFloor {
	policy := model.PolicyLocal
	for _, s := range frontends {
		if s.InternalPolicy == model.PolicyCluster || s.ExternalPolicy == model.PolicyCluster {
			policy = model.PolicyCluster
		}
	}
	rule := model.NewSelection(v.Service, model.Endpoints(frontends[0].Port, f, v.Slices), v.Node, policy).Zone()
	if rule == nil {
		return nil
	}
	out := api.ZoneFloor{Family: f.String(), Counts: rule.Counts(), Endpoints: rule.Own.Endpoints, Of: rule.All.Endpoints, Rule: rule.String()}
	if out.Counts {
		out.Elsewhere = rule.Elsewhere()
	}
	return []api.ZoneFloor{out}
}

func endpointOf(e model.Endpoint, f model.Family) api.DescribedEndpoint {
	h := e.Host
	d := api.DescribedEndpoint{Address: model.EndpointText(e.Address()), Family: f.String(), Node: h.Place.Node(), Zones: h.Place.ForZones(), Nodes: h.Place.ForNodes(), State: "not ready"}
	if !h.Drain || h.DrainedByOperator() {
		d.Weight = e.HostWeight()
	}
	switch {
	case h.Terminating && h.Serving:
		d.State = "terminating"
	case h.Terminating:
		d.State = "terminated"
	case h.Ready:
		d.State = "ready"
	}
	return d
}

// checkedOf returns the result of the health check of a host, or nil.
func checkedOf(v *model.View, h *model.Host) *api.Checked {
	if v.Checked == nil || v.Service.Check == nil {
		return nil
	}
	r, ok := v.Checked(h.Address)
	if !ok {
		return nil
	}
	if !r.Healthy {
		r.Message = r.Why()
	}
	return &api.Checked{Healthy: r.Healthy, Since: r.Since, Message: r.Message}
}

// usedInVain returns a notice about endpoints that take connections though their health
// check fails; empty: there is none.
func usedInVain(s *api.Description) string {
	first, used := "", make(map[string]bool)
	for i := range s.Ports {
		for j := range s.Ports[i].Endpoints {
			e := &s.Ports[i].Endpoints[j]
			if e.Checked == nil || e.Checked.Healthy || e.Inside.Part == 0 && (e.Outside == nil || e.Outside.Part == 0) {
				continue
			}
			if used[e.Host()] = true; first == "" {
				first = e.Host() + ": " + e.Checked.Message
			}
		}
	}
	switch len(used) {
	case 0:
		return ""
	case 1:
		return s.Words().Text("the only endpoint that could take connections fails its health check, so it is used: ") + first
	case 2:
		return s.Words().Text("both endpoints that could take connections fail their health check, so both are used: ") + first
	}
	return s.Words().Sprintf("all %d endpoints that could take connections fail their health check, so all are used: %s", len(used), first)
}

// shareOf returns the share of an endpoint, unless there is a reason why it has none.
func shareOf(e model.Endpoint, d served.Decision, leftOut string) api.Share {
	if leftOut != "" {
		return api.Share{LeftOut: leftOut}
	}
	n := d.Of(e.Address())
	return api.Share{Part: float64(n) / float64(max(1, d.Slots())), Slots: n}
}
