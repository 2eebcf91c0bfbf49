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
	ports := served.PortsOf(v)
	var all []*served.Frontend
	for _, p := range ports {
		all = append(all, p.Frontends...)
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
	for i := range ports {
		s.Ports = append(s.Ports, portOf(v, &ports[i]))
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
	return &api.HealthCheck{Port: h.Port, Endpoints: byFamily(h.Endpoints)}
}

func byFamily(numbers map[model.Family]int) map[string]int {
	out := make(map[string]int)
	for f, n := range numbers {
		out[f.String()] = n
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

func portOf(v *model.View, of *served.Port) api.DescribedPort {
	first := of.Claims[0].Route
	p := api.DescribedPort{Name: first.Port.Name, Protocol: first.Port.Protocol.String(), Port: first.Port.Port, LastPort: first.Frontend.Last, NodePort: first.Port.NodePort}
	for i, c := range of.Claims {
		p.Frontends = append(p.Frontends, frontendOf(c, of.Frontends[i]))
	}
	for _, f := range model.Families {
		for _, c := range of.Candidates(v, f) {
			p.Endpoints = append(p.Endpoints, candidateOf(v, &c, f))
		}
		if same := of.In(f); len(same) > 0 {
			p.ZoneFloors = append(p.ZoneFloors, zoneFloorOf(v, same, f)...)
		}
	}
	at := endpointsAt(&p)
	for _, c := range of.Claims {
		for a, s := range starting(c.Route, time.Now()) {
			if e := at[a]; e != nil {
				e.Starting = s
			}
		}
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

func candidateOf(v *model.View, c *served.Candidate, f model.Family) api.DescribedEndpoint {
	if c.Endpoint.Host == nil {
		return api.DescribedEndpoint{Address: c.Host.String(), Family: f.String(), Inside: shareOf(c.Inside)}
	}
	d := endpointOf(c.Endpoint, f)
	d.Name, d.Checked, d.Inside = v.Service.NameOf(c.Host), checkedOf(c.Checked), shareOf(c.Inside)
	if c.Outside != nil {
		share := shareOf(*c.Outside)
		d.Outside = &share
	}
	return d
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

func checkedOf(r *model.CheckResult) *api.Checked {
	if r == nil {
		return nil
	}
	message := r.Message
	if !r.Healthy {
		message = r.Why()
	}
	return &api.Checked{Healthy: r.Healthy, Since: r.Since, Message: message}
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

func shareOf(s served.Share) api.Share {
	return api.Share{Part: float64(s.Slots) / float64(max(1, s.Of)), Slots: s.Slots, LeftOut: s.LeftOut}
}

// addSettings adds the settings that the frontends of the Service share, as far as their
// origin knows them.
func addSettings(s *api.Description, all []*served.Frontend) {
	for _, f := range all {
		if f.Kind != model.ClusterIP && !f.Unknown.Has(served.ExternalPolicy) {
			s.ExternalPolicy = f.ExternalPolicy.String()
		}
		if !f.Unknown.Has(served.Scheduler) {
			s.Scheduler = f.Scheduler.String()
		}
		if n := f.TableSize(); n > 0 && (s.Maglev == nil || s.Maglev.Slots < n) {
			s.Maglev = &api.Maglev{Slots: n}
		}
		s.AffinitySeconds, s.AllPorts = max(s.AffinitySeconds, f.Affinity.Seconds()), s.AllPorts || f.Together
		if c := f.ClientAddresses(); c != model.DefaultClientAddresses {
			s.ClientAddresses = c.String()
		}
		s.Limits = limitsOf(f.Limits)
	}
	addClientLists(s, all)
}

// addClientLists adds the lists of clients. The lists of load balancer addresses are the source
// ranges if other frontends have another list.
func addClientLists(s *api.Description, all []*served.Frontend) {
	var balanced, others []*served.Frontend
	for _, f := range all {
		if f.Kind == model.LoadBalancerIP {
			balanced = append(balanced, f)
		} else {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		balanced, others = nil, balanced
	}
	own, ofBalancers := sourcesOf(others), sourcesOf(balanced)
	if own != nil {
		s.DeniedSources = own.Denied
		if own.Limited {
			s.AllowedSources = append([]netip.Prefix{}, own.Allowed...) // not nil
		}
	}
	if ofBalancers != nil && ofBalancers.Limited && (own == nil || !slices.Equal(own.Allowed, ofBalancers.Allowed)) {
		s.SourceRanges = append([]netip.Prefix{}, ofBalancers.Allowed...)
	}
}

// sourcesOf returns the clients that may connect to any of some frontends, of all
// families.
func sourcesOf(frontends []*served.Frontend) *model.Sources {
	limited := slices.ContainsFunc(frontends, func(f *served.Frontend) bool { return f.Sources != nil && f.Sources.Limited })
	var allowed, denied []netip.Prefix
	for _, f := range frontends {
		switch {
		case f.Sources == nil || !f.Sources.Limited: // of this family
			allowed = append(allowed, netip.PrefixFrom(model.Wildcard(model.FamilyOf(f.Address)), 0))
		default:
			allowed = append(allowed, f.Sources.Allowed...)
		}
		if f.Sources != nil {
			denied = append(denied, f.Sources.Denied...)
		}
	}
	return model.NewSources(limited, allowed, denied)
}

func limitsOf(l model.Limits) (out []api.Limit) {
	for k := range model.LimitKinds {
		if text := l.Text(model.LimitKind(k)); text != "" {
			out = append(out, api.Limit{Kind: model.LimitKind(k).String(), Admits: text})
		}
	}
	return out
}
