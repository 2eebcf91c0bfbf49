package metrics

import (
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
)

// FollowMachine exports the number of problems of this machine, by check, and the use of
// connection tracking. It is called once.
func (s *Set) FollowMachine(problems func() (problems, warnings map[string]int), conntrack func() (machine.Conntrack, error)) {
	failed := scraped.Gauge("nftproxy_machine_problems",
		"Problems of this machine that keep Services from being served; nftproxy check and the log have them in words.", "check")
	warned := scraped.Gauge("nftproxy_machine_warnings",
		"What may keep Services of this machine from being served, depending on what cannot be seen from here; nftproxy check and the log have it in words.", "check")
	entries := scraped.Gauge("nftproxy_conntrack_entries", "Connections that the kernel tracks in this network namespace.")
	limit := scraped.Gauge("nftproxy_conntrack_entries_limit", "Most connections that the kernel tracks.")
	s.Add(scraped.New(func(out scraped.Values) error {
		failures, warnings := problems()
		for check, n := range failures {
			out.Add(failed, float64(n), check)
		}
		for check, n := range warnings {
			out.Add(warned, float64(n), check)
		}
		// Without the module there is nothing to export.
		if use, err := conntrack(); err == nil && use.Max > 0 {
			out.Add(entries, float64(use.Count))
			out.Add(limit, float64(use.Max))
		}
		return nil
	}, failed, warned, entries, limit))
}
