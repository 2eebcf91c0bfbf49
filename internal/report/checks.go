package report

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Checks are the results of the health checks of endpoints.
type Checks interface {
	Result(model.ServiceName, netip.Addr) (model.CheckResult, bool)
	// Each calls a function with every result, in no order.
	Each(func(model.ServiceName, netip.Addr, model.CheckResult))
}

// failure is an endpoint that fails its health check.
type failure struct {
	service model.ServiceName
	address netip.Addr
	result  model.CheckResult
}

// addChecks adds the sums of health checks, and a problem for each Service with
// endpoints that fail. View returns the state of a Service.
func (r *report) addChecks(now time.Time, checks Checks, view func(model.ServiceName) *model.View) {
	sums, endpoints := &api.EndpointChecks{}, make(map[model.ServiceName]int)
	var failures []failure
	checks.Each(func(name model.ServiceName, a netip.Addr, result model.CheckResult) {
		endpoints[name]++
		switch {
		case !result.Healthy:
			sums.Failing++
			failures = append(failures, failure{name, a, result})
		case result.Since.IsZero():
			sums.Waiting++
		default:
			sums.Passing++
		}
	})
	if len(endpoints) == 0 {
		return
	}
	r.EndpointChecks, sums.Services = sums, len(endpoints)
	for name := range endpoints {
		if r.isBalance(name) {
			sums.Balances++
		}
	}
	slices.SortFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.service.String(), b.service.String()), a.address.Compare(b.address))
	})
	r.addFailingServers(failures, view)
	for same := range groups(failures, func(a, b *failure) bool { return a.service == b.service }) {
		name := same[0].service
		r.addProblem(name, model.CheckFailing, r.failingText(now, same, endpoints[name], usesAll(view(name))))
	}
}

// maxServers is how many failing servers a report has.
const maxServers = 1000

// addFailingServers adds the failing servers, the ones of the most Services first. The failures are sorted by Service.
func (r *report) addFailingServers(failures []failure, view func(model.ServiceName) *model.View) {
	servers, first := make(map[netip.Addr]*api.FailingServer), make(map[string]*failure)
	for i := range failures {
		f := &failures[i]
		isBalance := r.isBalance(f.service)
		s := servers[f.address]
		if s == nil {
			s = &api.FailingServer{Address: f.address.String(), Since: f.result.Since, Service: f.service.String(), Balance: isBalance, Message: f.result.Why()}
			servers[f.address], first[s.Address] = s, f
		}
		s.Services++
		if isBalance {
			s.Balances++
		}
		if f.result.Since.Before(s.Since) {
			s.Since = f.result.Since
		}
	}
	all := slices.SortedFunc(maps.Values(servers), func(a, b *api.FailingServer) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), cmp.Compare(a.Address, b.Address))
	})
	for _, s := range all[:min(len(all), maxServers)] {
		f := first[s.Address]
		if v := view(f.service); v != nil {
			s.Name = v.Service.NameOf(f.address)
		}
		r.FailingServers = append(r.FailingServers, *s)
	}
}

// groups yields the longest parts of a slice whose items are the same as the one before.
func groups[T any](all []T, same func(a, b *T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for begin, i := 0, 0; i < len(all); begin = i {
			for i++; i < len(all) && same(&all[i-1], &all[i]); i++ {
			}
			if !yield(all[begin:i]) {
				return
			}
		}
	}
}

// usesAll reports whether the endpoints of a Service are used if all fail.
func usesAll(v *model.View) bool {
	return v != nil && v.Service.Check != nil && v.Service.Check.AllFailing == model.UseAll
}

// failingText returns for example "2 of 3 endpoints fail their health check, such as 10.0.0.3:
// connect: refused, for 2m0s".
func (r *report) failingText(now time.Time, failing []failure, all int, usesAll bool) string {
	in, n, first := r.wordsFor(failing[0].service), len(failing), failing[0]
	what, then := in.Sprintf("%d of %d endpoints fail their health check, such as %s", n, all, first.address), ""
	switch {
	case all == 1:
		what = in.Sprintf("health check of its only endpoint, %s, fails", first.address)
	case n == 1:
		what = fmt.Sprintf("health check of %s fails", first.address)
	case n == all && all == 2:
		what = in.Sprintf("both endpoints fail their health check, such as %s", first.address)
	case n == all:
		what = in.Sprintf("all %d endpoints fail their health check, such as %s", all, first.address)
	}
	switch {
	case n == all && usesAll:
		then = "; connections go there all the same"
	case n == all:
		then = "; connections are rejected"
	}
	return fmt.Sprintf("%s: %s, for %s%s", what, first.result.Why(), now.Sub(first.result.Since).Round(time.Second), then)
}

// addFailing adds the endpoints of a Service that fail their health check.
func addFailing(d *api.LiveDetail, checks Checks, service model.ServiceName) {
	var all []failure
	checks.Each(func(name model.ServiceName, a netip.Addr, r model.CheckResult) {
		if name == service && !r.Healthy {
			all = append(all, failure{name, a, r})
		}
	})
	slices.SortFunc(all, func(a, b failure) int { return a.address.Compare(b.address) })
	d.FailingCount = len(all)
	for _, f := range all[:min(len(all), maxFailing)] {
		d.Failing = append(d.Failing, api.FailingEndpoint{Address: f.address.String(), Message: f.result.Why(), Since: f.result.Since})
	}
}
