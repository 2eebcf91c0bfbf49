package metrics

import "github.com/prometheus/client_golang/prometheus"

// FollowDrains exports how many entries the list of drained endpoints has, and whether its
// file can be used. It is called at most once.
func (s *Set) FollowDrains(drains func() (entries int, usable bool)) {
	gauge := func(name, help string, value func() float64) {
		s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("nftproxy_drained_endpoints", "Endpoints that the operator drains on this machine.", func() float64 {
		entries, _ := drains()
		return float64(entries)
	})
	gauge("nftproxy_drain_file_usable", "1 if the list of drained endpoints can be used, else 0; its last list stays in force, if one is known.", func() float64 {
		if _, usable := drains(); !usable {
			return 0
		}
		return 1
	})
}
