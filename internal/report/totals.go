package report

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
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
