package report

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// startingOf returns the endpoints of some routes that start slowly. There is no map if none does.
func startingOf(now time.Time, routes ...*model.Route) map[netip.AddrPort]*api.Starting {
	var out map[netip.AddrPort]*api.Starting
	for _, r := range routes {
		if len(r.Service.Extra().Starting) == 0 { // of most
			continue
		}
		for _, choice := range [][]model.Endpoint{r.Choice.Cluster, r.Choice.Local} {
			for _, e := range choice {
				if s := r.Service.Start(e); s != nil {
					if out == nil {
						out = make(map[netip.AddrPort]*api.Starting)
					}
					out[e.Address()] = &api.Starting{Part: float64(s.Part) / model.StartParts, Full: onClock(now, s.Full)}
				}
			}
		}
	}
	return out
}

// maxStarting is how many endpoints that start slowly a report has.
const maxStarting = 1000

// addStarting adds the endpoints of the routes of these Services that start slowly.
func (r *report) addStarting(routes []model.Route, now time.Time, filter *api.Filter) {
	type server struct {
		service model.ServiceName
		address netip.AddrPort
	}
	found, balances := make(map[server]*api.Starting), make(map[model.ServiceName]bool)
	for i := range routes {
		name := routes[i].Service.Name
		if len(routes[i].Service.Extra().Starting) == 0 || !filter.Matches(name) {
			continue
		}
		for a, s := range startingOf(now, &routes[i]) {
			found[server{name, a}], balances[name] = s, routes[i].Service.Balance
		}
	}
	all := make([]server, 0, len(found))
	for s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b server) int { return cmp.Or(a.service.Compare(b.service), a.address.Compare(b.address)) })
	r.StartingCount = len(all)
	for _, s := range all[:min(len(all), maxStarting)] {
		r.Starting = append(r.Starting, api.StartingServer{Service: s.service.String(), Balance: balances[s.service], Address: model.EndpointText(s.address), Starting: *found[s]})
	}
}
