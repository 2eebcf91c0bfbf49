package metrics

import "github.com/prometheus/client_golang/prometheus"

// FollowNames exports how many names of servers are looked up, and how many of them failed at
// the last attempt. It is called at most once.
func (s *Set) FollowNames(names func() (all, failing int)) {
	gauge := func(name, help string, value func() float64) {
		s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("nftproxy_names", "Names of servers that are looked up in DNS.", func() float64 {
		all, _ := names()
		return float64(all)
	})
	gauge("nftproxy_names_failing", "Names of servers whose last lookup failed; their last addresses stay.", func() float64 {
		_, failing := names()
		return float64(failing)
	})
}

// LookedUp counts a lookup of a name of servers.
func (s *Set) LookedUp(failed bool) {
	result := "found"
	if failed {
		result = "failed"
	}
	s.lookups.WithLabelValues(result).Inc()
}
