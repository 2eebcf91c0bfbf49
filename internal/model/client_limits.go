package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// clientLimits are the Services with limits per client. If they have too many of these
// (4.94), the limits of the oldest Services apply. In the kernel each limit is a chain and a
// set, which the kernel walks to find one by its name, and elements with verdicts, which it
// visits when another one is added.
type clientLimits struct {
	asking  map[ServiceName]*Service
	limits  int                      // of all of them
	refused map[ServiceName]bool     // Services whose limits per client do not apply
	touched map[ServiceName]*Service // since the last decision, as they were at that time
}

func newClientLimits() clientLimits {
	return clientLimits{asking: make(map[ServiceName]*Service), touched: make(map[ServiceName]*Service)}
}

// perClient returns the number of limits per client.
func (l Limits) perClient() (n int) {
	if l.ConnectionsPerClient > 0 {
		n++
	}
	if l.RatePerClient.Amount > 0 {
		n++
	}
	return n
}

// countService adds a Service n times; n is 1 or -1.
func (c *clientLimits) countService(s *Service, n int) {
	limits := s.Extra().Limits.perClient()
	if limits == 0 {
		return
	}
	c.limits += n * limits
	if _, known := c.touched[s.Name]; !known {
		c.touched[s.Name] = c.asking[s.Name]
	}
	if c.asking[s.Name] = s; n < 0 {
		delete(c.asking, s.Name)
	}
}

// isStale reports whether other limits may apply than before: a Service that asks for as many
// as before, with other endpoints for example, changes nothing.
func (c *clientLimits) isStale() bool {
	if c.limits <= budget.ClientLimits && len(c.refused) == 0 {
		return false
	}
	for name, before := range c.touched {
		now := c.asking[name]
		if before == nil || now == nil || before.Created != now.Created || before.Extra().Limits.perClient() != now.Extra().Limits.perClient() {
			return true
		}
	}
	return false
}

// chooseRefused returns the Services whose limits per client do not apply.
func (c *clientLimits) chooseRefused() map[ServiceName]bool {
	if c.limits <= budget.ClientLimits {
		return nil
	}
	all := slices.SortedFunc(maps.Values(c.asking), func(a, b *Service) int {
		return cmp.Or(compareAge(a.Created, b.Created), a.Name.Compare(b.Name))
	})
	refused, admitted := make(map[ServiceName]bool), 0
	for _, s := range all {
		n := s.Extra().Limits.perClient()
		if admitted+n > budget.ClientLimits {
			refused[s.Name] = true
			continue
		}
		admitted += n
	}
	return refused
}

// settleLimits decides again whose limits per client apply, after changes.
func (r *Router) settleLimits(touched map[Frontend]*Route) {
	c := &r.clientLimits
	defer func() { clear(c.touched) }()
	if !c.isStale() {
		return
	}
	before := c.refused
	c.refused = c.chooseRefused()
	for _, name := range slices.Collect(maps.Keys(c.asking)) {
		if before[name] != c.refused[name] {
			r.set(r.decideAgain(name), touched)
		}
	}
}

// withoutClientLimits returns the Service without limits per client, and a notice.
func (s *Service) withoutClientLimits() (*Service, []Notice) {
	out, extras := *s, *s.Extras
	extras.Limits.ConnectionsPerClient, extras.Limits.RatePerClient = 0, Rate{}
	out.Extras = &extras
	return &out, []Notice{newNotice(s.Object(), ManyLimits,
		"limits per client do not apply: older Services have %d of them", budget.ClientLimits)}
}
