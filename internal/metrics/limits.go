package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/report"
)

// FollowLimits exports what limits of Services have dropped, and of how many connections they had no room for the client.
// Each scrape calls both functions, for example [report.Server.LimitCounts] and [report.Server.UnlimitedCounts],
// which must be safe for concurrent use. FollowLimits is called at most once.
func (s *Set) FollowLimits(dropped, unlimited func() ([]report.LimitCount, error)) {
	labels := []string{"namespace", "service", "port", "protocol", "frontend", familyLabel, "limit"}
	s.registry.MustRegister(
		&limits{prometheus.NewDesc("nftproxy_service_connections_limited_total", "New connections to the frontends of a service port that a limit has dropped.", labels, nil), dropped},
		&limits{prometheus.NewDesc("nftproxy_service_connections_unlimited_total",
			"New connections to the frontends of a service port that passed without a limit of clients, because it remembers no more clients.", labels, nil), unlimited})
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
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("read counters of limits: %w", err))
		return
	}
	for _, n := range counts {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n.Connections),
			n.Port.Service.Namespace, n.Port.Service.Name, n.Port.Port,
			strings.ToUpper(n.Port.Protocol.String()), frontendLabels[n.Kind], n.Family.String(), n.Limit.String())
	}
}
