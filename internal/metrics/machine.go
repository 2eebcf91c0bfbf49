package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/machine"
)

var (
	machineProblems = prometheus.NewDesc("nftproxy_machine_problems",
		"Problems of this machine that keep Services from being served; nftproxy check and the log have them in words.", []string{"check"}, nil)
	machineWarnings = prometheus.NewDesc("nftproxy_machine_warnings",
		"What may keep Services of this machine from being served, depending on what cannot be seen from here; nftproxy check and the log have it in words.", []string{"check"}, nil)
	conntrackEntries = prometheus.NewDesc("nftproxy_conntrack_entries", "Connections that the kernel tracks in this network namespace.", nil, nil)
	conntrackLimit   = prometheus.NewDesc("nftproxy_conntrack_entries_limit", "Most connections that the kernel tracks.", nil, nil)
)

// FollowMachine exports the number of problems of this machine, by check, and the use of
// connection tracking. It is called once.
func (s *Set) FollowMachine(problems func() (problems, warnings map[string]int), conntrack func() (machine.Conntrack, error)) {
	s.registry.MustRegister(&machineCollector{problems, conntrack})
}

// machineCollector asks for the state of the machine with each scrape.
type machineCollector struct {
	problems  func() (problems, warnings map[string]int)
	conntrack func() (machine.Conntrack, error)
}

func (c *machineCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- machineProblems
	descs <- machineWarnings
	descs <- conntrackEntries
	descs <- conntrackLimit
}

func (c *machineCollector) Collect(out chan<- prometheus.Metric) {
	problems, warnings := c.problems()
	for check, n := range problems {
		out <- prometheus.MustNewConstMetric(machineProblems, prometheus.GaugeValue, float64(n), check)
	}
	for check, n := range warnings {
		out <- prometheus.MustNewConstMetric(machineWarnings, prometheus.GaugeValue, float64(n), check)
	}
	// Without the module there is nothing to export.
	if use, err := c.conntrack(); err == nil && use.Max > 0 {
		out <- prometheus.MustNewConstMetric(conntrackEntries, prometheus.GaugeValue, float64(use.Count))
		out <- prometheus.MustNewConstMetric(conntrackLimit, prometheus.GaugeValue, float64(use.Max))
	}
}
