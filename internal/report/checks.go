package report

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Checks are the results of the health checks of endpoints.
type Checks interface {
	Result(model.ServiceName, netip.Addr) (model.CheckResult, bool)
	// Each calls a function with every result, in no order.
	Each(func(model.ServiceName, netip.Addr, model.CheckResult))
}

// checked are the results of one Service.
type checked struct {
	all, failing, waiting int
	first                 netip.Addr // that fails
	result                model.CheckResult
	in                    words.Vocabulary
}

// addChecks adds the sums of health checks, and a problem for each Service with
// endpoints that fail. View returns the state of a Service.
func (r *report) addChecks(now time.Time, checks Checks, view func(model.ServiceName) *model.View) {
	services, servers := make(map[model.ServiceName]*checked), make(failing)
	checks.Each(func(name model.ServiceName, a netip.Addr, result model.CheckResult) {
		c := services[name]
		if c == nil {
			c = &checked{in: r.wordsFor(name)}
			services[name] = c
		}
		c.all++
		switch {
		case result.Healthy && result.Since.IsZero():
			c.waiting++
			return
		case result.Healthy:
			return
		}
		servers.add(name, a, result, c.in == words.Balance)
		if c.failing++; !c.first.IsValid() || a.Less(c.first) {
			c.first, c.result = a, result
		}
	})
	if len(services) == 0 {
		return
	}
	r.EndpointChecks = &api.EndpointChecks{Services: len(services)}
	r.FailingServers = servers.sorted(view)
	for _, name := range slices.SortedFunc(maps.Keys(services), model.ServiceName.Compare) {
		c := services[name]
		if c.in == words.Balance {
			r.EndpointChecks.Balances++
		}
		r.EndpointChecks.Failing += c.failing
		r.EndpointChecks.Waiting += c.waiting
		r.EndpointChecks.Passing += c.all - c.failing - c.waiting
		if c.failing > 0 {
			r.Problems = append(r.Problems, api.Problem{Object: r.objectOf(name), Reason: model.CheckFailing, Message: c.message(now, usesAll(view(name)))})
		}
	}
}

// usesAll reports whether the endpoints of a Service are used if all fail.
func usesAll(v *model.View) bool {
	return v != nil && v.Service.Check != nil && v.Service.Check.AllFailing == model.UseAll
}

// message returns for example "2 of 3 endpoints fail their health check, such as 10.0.0.3:
// connect: refused, for 2m0s".
func (c *checked) message(now time.Time, usesAll bool) string {
	what := c.in.Sprintf("%d of %d endpoints fail their health check, such as %s", c.failing, c.all, c.first)
	then := ""
	switch {
	case c.all == 1:
		what = c.in.Sprintf("health check of its only endpoint, %s, fails", c.first)
	case c.failing == 1:
		what = fmt.Sprintf("health check of %s fails", c.first)
	case c.failing == c.all && c.all == 2:
		what = c.in.Sprintf("both endpoints fail their health check, such as %s", c.first)
	case c.failing == c.all:
		what = c.in.Sprintf("all %d endpoints fail their health check, such as %s", c.all, c.first)
	}
	switch {
	case c.failing == c.all && usesAll:
		then = "; connections go there all the same"
	case c.failing == c.all:
		then = "; connections are rejected"
	}
	return fmt.Sprintf("%s: %s, for %s%s", what, c.result.Why(), now.Sub(c.result.Since).Round(time.Second), then)
}
