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
type failing map[netip.Addr]*api.FailingServer

func (f failing) add(name model.ServiceName, a netip.Addr, result model.CheckResult, isBalance bool) {
	s := f[a]
	if s == nil {
		s = &api.FailingServer{Address: a.String(), Since: result.Since, Service: name.String(), Balance: isBalance, Message: result.Why()}
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
		s.Service, s.Balance, s.Message = name.String(), isBalance, result.Why()
	}
}

// maxServers is how many failing servers a report has.
const maxServers = 1000

// sorted returns the failing servers, the ones of the most Services first.
func (f failing) sorted() []api.FailingServer {
	order := slices.SortedFunc(maps.Values(f), func(a, b *api.FailingServer) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), cmp.Compare(a.Address, b.Address))
	})
	var out []api.FailingServer
	for _, s := range order[:min(len(order), maxServers)] {
		out = append(out, *s)
	}
	return out
}
