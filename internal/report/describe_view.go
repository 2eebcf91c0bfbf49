package report

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
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
		s.Ports = append(s.Ports, portOf(v, claims[:n]))
		claims = claims[n:]
	}
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

// addLists replaces the lists of clients by those of the object, which also has ranges of
// a family without a frontend.
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

// portOf describes the service port of some claims.
func portOf(v *model.View, claims []model.ViewedClaim) api.DescribedPort {
	first := claims[0].Route
	p := api.DescribedPort{Name: first.Port.Name, Protocol: first.Port.Protocol.String(), Port: first.Port.Port, LastPort: first.Frontend.Last, NodePort: first.Port.NodePort}
	byFamily := make(map[model.Family][]*model.Route)
	for _, c := range claims {
		p.Frontends = append(p.Frontends, frontendOf(c))
		f := model.FamilyOf(c.Route.Frontend.Address)
		byFamily[f] = append(byFamily[f], c.Route)
	}
	for _, f := range model.Families {
		if routes := byFamily[f]; len(routes) > 0 {
			p.Endpoints = append(p.Endpoints, endpointsOf(v, routes, f)...)
		}
	}
	return p
}

func frontendOf(c model.ViewedClaim) api.DescribedFrontend {
	r := c.Route
	f := api.DescribedFrontend{Kind: r.Kind.String(), Address: r.Frontend.Target()}
	if c.Winner != nil {
		f.ServedBy = c.Winner.PortName().String()
		return f
	}
	f.Inside, f.Outside = r.Inside().Verdict.String(), r.Outside().Verdict.String()
	if c.Behind.Port != 0 {
		f.ConnectsTo = netip.AddrPortFrom(c.Behind.Address, c.Behind.Port).String()
	}
	for _, loser := range c.Losers {
		f.AlsoClaimed = append(f.AlsoClaimed, loser.PortName().String())
	}
	slices.Sort(f.AlsoClaimed)
	return f
}

// endpointsOf describes the endpoints of a service port in a family. The routes are all
// those that it has there.
func endpointsOf(v *model.View, routes []*model.Route, f model.Family) []api.DescribedEndpoint {
	port, choice := routes[0].PortName(), routes[0].Choice
	inside, outside := routes[0].InsidePolicy(), model.PolicyCluster // the first one is that of the ClusterIP
	external := false
	for _, r := range routes {
		external = external || r.Kind != model.ClusterIP
		if r.Local() {
			outside = model.PolicyLocal
		}
	}
	all := model.Endpoints(port, f, v.Slices)
	slots, _ := render.Slots(v.Service, v.Scheduler, routes[0].Inside().Endpoints, nil)
	within := newShares(v, all, inside, slots)
	var local []model.Endpoint
	if outside == model.PolicyLocal {
		local = choice.Local
	}
	_, slots = render.Slots(v.Service, v.Scheduler, choice.Cluster, local)
	without := newShares(v, all, outside, slots)
	var out []api.DescribedEndpoint
	for _, e := range all {
		d := endpointOf(e, f)
		d.Checked = checkedOf(v, e.Host)
		d.Inside = within.of(e)
		if external && inside != outside {
			share := without.of(e)
			d.Outside = &share
		}
		out = append(out, d)
	}
	for _, o := range model.NotCandidates(port, f, v.Slices) {
		if o.Endpoint.Port() == 0 { // the others have an entry, in this family or another one
			out = append(out, api.DescribedEndpoint{Address: o.Endpoint.Addr().String(), Family: f.String(), Inside: api.Share{LeftOut: o.Reason}})
		}
	}
	return out
}

func endpointOf(e model.Endpoint, f model.Family) api.DescribedEndpoint {
	h := e.Host
	d := api.DescribedEndpoint{Address: model.EndpointText(e.Address()), Family: f.String(), Node: h.Place.Node(), Zones: h.Place.ForZones(), Nodes: h.Place.ForNodes(), State: "not ready"}
	if !h.Drain || h.DrainedByOperator() {
		d.Weight = max(1, int(h.Weight))
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
		return "the only endpoint that could take connections fails its health check, so it is used: " + first
	}
	return fmt.Sprintf("all %d endpoints that could take connections fail their health check, so all are used: %s", len(used), first)
}

// shares are the shares of the endpoints that a policy chooses.
type shares struct {
	view      *model.View
	selection model.Selection
	slots     func(model.Endpoint) int
	total     int
}

func newShares(v *model.View, all []model.Endpoint, p model.Policy, slots func(model.Endpoint) int) shares {
	s := shares{view: v, selection: model.NewSelection(v.Service, all, v.Node, p), slots: slots}
	for _, e := range all {
		if s.selection.Excludes(e.Host) == model.Chosen {
			s.total += s.slots(e)
		}
	}
	return s
}

func (s shares) of(e model.Endpoint) api.Share {
	if why := s.view.Reason(s.selection, e.Host); why != "" {
		return api.Share{LeftOut: why}
	}
	n := s.slots(e)
	return api.Share{Part: float64(n) / float64(s.total), Slots: n}
}
