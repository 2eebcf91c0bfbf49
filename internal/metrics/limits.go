package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/report"
)

// FollowLimits exports what limits of Services have dropped. Each scrape calls read, for
// example [report.Server.LimitCounts], which must be safe for concurrent use. FollowLimits
// is called at most once.
func (s *Set) FollowLimits(read func() ([]report.LimitCount, error)) {
	s.registry.MustRegister(&limits{
		desc: prometheus.NewDesc("nftproxy_service_connections_limited_total", "New connections to the frontends of a service port that a limit has dropped.",
			[]string{"namespace", "service", "port", "protocol", "frontend", familyLabel, "limit"}, nil),
		read: read,
	})
}

// limits is a collector that reads the counts at every scrape.
type limits struct {
	desc *prometheus.Desc
	read func() ([]report.LimitCount, error)
}

// Describe implements [prometheus.Collector].
func (c *limits) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements [prometheus.Collector].
func (c *limits) Collect(out chan<- prometheus.Metric) {
	counts, err := c.read()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("read connections dropped by limits: %w", err))
		return
	}
	for _, n := range counts {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n.Dropped),
			n.Port.Service.Namespace, n.Port.Service.Name, n.Port.Port,
			strings.ToUpper(n.Port.Protocol.String()), frontendLabels[n.Kind], n.Family.String(), n.Limit.String())
	}
}
