package report

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// failing collects the failing servers of all Services.
type failing map[netip.Addr]*failingServer

type failingServer struct {
	api.FailingServer
	address netip.Addr
	first   model.ServiceName // the first Service
}

func (f failing) add(name model.ServiceName, a netip.Addr, result model.CheckResult, isBalance bool) {
	s := f[a]
	if s == nil {
		s = &failingServer{address: a, first: name}
		s.FailingServer = api.FailingServer{Address: a.String(), Since: result.Since, Service: name.String(), Balance: isBalance, Message: result.Why()}
		f[a] = s
	}
	s.Services++
	if isBalance {
		s.Balances++
	}
	if result.Since.Before(s.Since) {
		s.Since = result.Since
	}
	if name.String() < s.Service {
		s.first, s.Service, s.Balance, s.Message = name, name.String(), isBalance, result.Why()
	}
}

// maxServers is how many failing servers a report has.
const maxServers = 1000

// sorted returns the failing servers, the ones of the most Services first. view returns the state of a Service.
func (f failing) sorted(view func(model.ServiceName) *model.View) []api.FailingServer {
	order := slices.SortedFunc(maps.Values(f), func(a, b *failingServer) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), cmp.Compare(a.Address, b.Address))
	})
	var out []api.FailingServer
	for _, s := range order[:min(len(order), maxServers)] {
		if v := view(s.first); v != nil {
			s.Name = v.Service.NameOf(s.address)
		}
		out = append(out, s.FailingServer)
	}
	return out
}
