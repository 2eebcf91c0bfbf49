package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/report"
)

// FollowRefusals exports the connections that the rules have refused. Each scrape calls read,
// for example [report.Server.RefusalCounts], which must be safe for concurrent use.
// FollowRefusals is called at most once.
func (s *Set) FollowRefusals(read func() ([]report.RefusalCount, error)) {
	s.registry.MustRegister(&refusals{
		desc: prometheus.NewDesc("nftproxy_refused_connections_total", "New connections that the rules have refused, by reason and Service.",
			[]string{"reason", "namespace", "service"}, nil),
		read: read,
	})
}

// refusals is a collector that reads the counts at every scrape.
type refusals struct {
	desc *prometheus.Desc
	read func() ([]report.RefusalCount, error)
}

// Describe implements [prometheus.Collector].
func (c *refusals) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements [prometheus.Collector].
func (c *refusals) Collect(out chan<- prometheus.Metric) {
	counts, err := c.read()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("read refused connections: %w", err))
		return
	}
	for _, n := range counts {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n.Refused), n.Reason.String(), n.Service.Namespace, n.Service.Name)
	}
}
