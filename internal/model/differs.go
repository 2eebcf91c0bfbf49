package model

import "slices"

// Differs reports whether clients of the frontend may notice the change: who serves
// it, with which endpoints and weights, for which clients, or how.
func (c *RouteChange) Differs() bool {
	a, b := c.Old, c.New
	if a == nil || b == nil || a == b {
		return a != b
	}
	return a.Kind != b.Kind || a.PortName() != b.PortName() || a.Local() != b.Local() ||
		a.Masquerading() != b.Masquerading() || !slices.Equal(a.MasqueradeFrom(), b.MasqueradeFrom()) ||
		a.Service.BindsTogether() != b.Service.BindsTogether() ||
		a.Service.AffinityTimeout != b.Service.AffinityTimeout || a.Service.Scheduler != b.Service.Scheduler ||
		a.Service.Extra().MaglevSize != b.Service.Extra().MaglevSize ||
		a.Service.Extra().Limits != b.Service.Extra().Limits ||
		!a.Sources.Equal(b.Sources) ||
		!a.Inside().hasSameEffect(b.Inside()) || !a.Outside().hasSameEffect(b.Outside())
}

// hasSameEffect reports whether two decisions have the same effect.
func (d Decision) hasSameEffect(o Decision) bool {
	return d.Verdict == o.Verdict && slices.EqualFunc(d.Endpoints, o.Endpoints, func(a, b Endpoint) bool {
		return a.sameAddress(b) && a.Weight() == b.Weight()
	})
}
