package report

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

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

// maxStarting is how many endpoints that start slowly a report has.
const maxStarting = 1000

// starter is an endpoint of a Service.
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

// addStarting adds the endpoints of the routes of these Services that start slowly.
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
		r.Starting = append(r.Starting, api.StartingServer{Service: s.service.Name.String(), Balance: s.service.Balance, Address: model.EndpointText(s.address), Starting: *found[s]})
	}
}
