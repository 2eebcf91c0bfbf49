package model

import "github.com/nftproxy/nftproxy/internal/budget"

// limitAsk is the request of a Service for limits per client, which have a budget (4.94). In the kernel
// each limit is a chain and a set, which the kernel walks to find one by its name, and elements with
// verdicts, which it visits when another one is added. A Service gets all of its limits, or none.
type limitAsk struct {
	created int64
	limits  int
}

func (a limitAsk) age() int64 { return a.created }
func (a limitAsk) alone() int { return a.limits }
func (a limitAsk) cost() int  { return a.limits }

func (a limitAsk) fit(left int) (granted, cost int) {
	if a.limits > left {
		return 0, 0
	}
	return a.limits, a.limits
}

func (s *Service) limitAsk() (a limitAsk) {
	if s.Extra().Limits.ConnectionsPerClient > 0 {
		a.limits++
	}
	if s.Extra().Limits.RatePerClient.Amount > 0 {
		a.limits++
	}
	if a.limits > 0 {
		a.created = s.Created
	}
	return a
}

func (s *Service) withoutClientLimits() (*Service, []Notice) {
	out, extras := *s, *s.Extras
	extras.Limits.ConnectionsPerClient, extras.Limits.RatePerClient = 0, Rate{}
	out.Extras = &extras
	return &out, []Notice{newNotice(s.Object(), ManyLimits,
		"limits per client do not apply: older Services have %d of them", budget.ClientLimits)}
}
