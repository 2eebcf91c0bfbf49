package report

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// EndpointTotal is the number of connections that a service port sent to an endpoint.
type EndpointTotal struct {
	Port        model.PortName
	Endpoint    netip.AddrPort // port 0: the one that the client dials
	Connections uint64
}

// EndpointTotals returns the connections to the endpoints of the service ports of the node,
// sorted: of whole service ports, in the order of their names, up to
// [budget.EndpointSeries] endpoints. omitted is the number of the other service ports.
func (s *counterCache) EndpointTotals() (all []EndpointTotal, omitted int, err error) {
	routing := s.routing()
	if routing == nil {
		return nil, 0, nil
	}
	ports, omitted := portsWithin(budget.EndpointSeries, routing.Routes)
	owners := make(map[model.Frontend]model.PortName)
	var frontends []model.Frontend
	for _, routes := range ports {
		for _, r := range routes {
			owners[r.Frontend] = r.PortName()
			frontends = append(frontends, r.Frontend)
		}
	}
	counts, err := s.EndpointCounts(frontends)
	if err != nil {
		return nil, 0, err
	}
	sums := make(map[model.PortName]map[netip.AddrPort]uint64)
	for _, n := range counts {
		port := owners[n.Frontend]
		if sums[port] == nil {
			sums[port] = make(map[netip.AddrPort]uint64)
		}
		sums[port][n.Endpoint] += n.Connections
	}
	for _, port := range slices.SortedFunc(maps.Keys(sums), model.PortName.Compare) {
		if len(all)+len(sums[port]) > budget.EndpointSeries { // of endpoints that are gone
			omitted++
			continue
		}
		for _, e := range slices.SortedFunc(maps.Keys(sums[port]), netip.AddrPort.Compare) {
			all = append(all, EndpointTotal{port, e, sums[port][e]})
		}
	}
	return all, omitted, nil
}

// portsWithin returns the routes of the first service ports that have at most so many
// endpoints together, and the number of the others.
func portsWithin(most int, routes []model.Route) (ports [][]*model.Route, omitted int) {
	sorted := make([]*model.Route, len(routes))
	for i := range routes {
		sorted[i] = &routes[i]
	}
	slices.SortFunc(sorted, func(a, b *model.Route) int {
		return cmp.Or(a.PortName().Compare(b.PortName()), a.Frontend.Compare(b.Frontend))
	})
	for port := range groups(sorted, func(a, b **model.Route) bool { return (*a).PortName() == (*b).PortName() }) {
		if size := endpointsIn(port, most); size > most {
			omitted++
		} else {
			ports, most = append(ports, port), most-size
		}
	}
	return ports, omitted
}

// endpointsIn returns the number of distinct endpoints of some routes, or a number above
// most.
func endpointsIn(routes []*model.Route, most int) int {
	found := make(map[netip.AddrPort]bool)
	for _, r := range routes {
		for _, d := range []model.Decision{r.Inside(), r.Outside()} {
			if len(d.Endpoints) > most {
				return most + 1
			}
			for i := range d.Endpoints {
				found[d.Endpoints[i].Address()] = true
			}
		}
	}
	return len(found)
}

// sums count frontends and their endpoints, in all and by Service.
type sums struct {
	totals   api.Totals // without connections
	services []api.LiveService
	index    map[model.ServiceName]int
	seen     map[endpoint]bool
}

// endpoint is a distinct endpoint: of a Service, or of any.
type endpoint struct {
	service  int // its place, or anyService
	protocol model.Protocol
	address  netip.AddrPort
}

const anyService = -1

func newSums() *sums {
	return &sums{index: make(map[model.ServiceName]int), seen: make(map[endpoint]bool)}
}

func (s *sums) add(f *served.Frontend, isBalance bool) {
	name := f.Port.Service
	at, ok := s.index[name]
	if !ok {
		at = len(s.services)
		s.index[name], s.services = at, append(s.services, api.LiveService{Balance: isBalance, Namespace: name.Namespace, Name: name.Name})
		s.totals.Services++
	}
	of := &s.services[at]
	of.Relayed = of.Relayed || f.Relayed
	of.Frontends++
	s.totals.Frontends++
	if f.Inside.Verdict != model.Forward || f.Outside.Verdict != model.Forward {
		of.Unserved++
		s.totals.Unserved++
	}
	decisions := []served.Decision{f.Inside, f.Outside}
	if f.ExternalPolicy != model.PolicyLocal { // both are one
		decisions = decisions[:1]
	}
	for _, d := range decisions {
		for _, e := range d.Endpoints {
			of.Endpoints += s.first(endpoint{at, f.Protocol, e.Address})
			s.totals.Endpoints += s.first(endpoint{anyService, f.Protocol, e.Address})
		}
	}
}

// first returns 1 for an endpoint that was not seen before, or else 0.
func (s *sums) first(e endpoint) int {
	if s.seen[e] {
		return 0
	}
	s.seen[e] = true
	return 1
}

// starting yields the endpoints of a route that start slowly, in some cases twice.
func starting(r *model.Route, now time.Time) iter.Seq2[netip.AddrPort, *api.Starting] {
	return func(yield func(netip.AddrPort, *api.Starting) bool) {
		if len(r.Service.Extra().Starting) == 0 { // of most
			return
		}
		for _, choice := range [...][]model.Endpoint{r.Choice.Cluster, r.Choice.Local} {
			for _, e := range choice {
				s := r.Service.Start(e)
				if s != nil && !yield(e.Address(), &api.Starting{Part: float64(s.Part) / model.StartParts, Full: OnClock(now, s.Full)}) {
					return
				}
			}
		}
	}
}

const maxStarting = 1000

type starter struct {
	service *model.Service
	address netip.AddrPort
}

// startersOf returns the endpoints of routes that start slowly, each once for its Service. There is no
// map if none does.
func startersOf(routes []model.Route, now time.Time) (out map[starter]*api.Starting) {
	for i := range routes {
		for a, s := range starting(&routes[i], now) {
			if out == nil {
				out = make(map[starter]*api.Starting)
			}
			out[starter{routes[i].Service, a}] = s
		}
	}
	return out
}

func (r *report) addStarting(routes []model.Route, now time.Time, filter *api.Filter) {
	found := startersOf(routes, now)
	var all []starter
	for s := range found {
		if filter.Matches(s.service.Name) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b starter) int {
		return cmp.Or(a.service.Name.Compare(b.service.Name), a.address.Compare(b.address))
	})
	r.StartingCount = len(all)
	for _, s := range all[:min(len(all), maxStarting)] {
		r.Starting = append(r.Starting, api.StartingServer{ServiceText: s.service.Name.Text(s.service.Balance), Address: model.EndpointText(s.address), Starting: *found[s]})
	}
}
