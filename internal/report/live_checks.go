package report

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// addFailing adds the endpoints of a Service that fail their health check.
func addFailing(d *api.LiveDetail, checks Checks, service model.ServiceName) {
	type failing struct {
		address netip.Addr
		result  model.CheckResult
	}
	var all []failing
	checks.Each(func(name model.ServiceName, a netip.Addr, r model.CheckResult) {
		if name == service && !r.Healthy {
			all = append(all, failing{a, r})
		}
	})
	slices.SortFunc(all, func(a, b failing) int { return a.address.Compare(b.address) })
	d.FailingCount = len(all)
	for _, f := range all[:min(len(all), maxFailing)] {
		d.Failing = append(d.Failing, api.FailingEndpoint{Address: f.address.String(), Message: f.result.Why(), Since: f.result.Since})
	}
}
