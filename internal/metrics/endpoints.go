package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// FollowEndpoints exports the connections to each endpoint. Each scrape calls read, for
// example [report.Server.EndpointTotals], which must be safe for concurrent use.
// FollowEndpoints is called at most once.
func (s *Set) FollowEndpoints(read func() (all []report.EndpointTotal, omitted int, err error)) {
	s.registry.MustRegister(&endpoints{
		total: prometheus.NewDesc("nftproxy_endpoint_connections_total", "New connections of a service port that were sent to an endpoint.",
			[]string{"namespace", "service", "port", "protocol", "endpoint"}, nil),
		omitted: prometheus.NewDesc("nftproxy_endpoint_connections_omitted", "Service ports whose endpoints have no series, because there would be too many.", nil, nil),
		read:    read,
	})
}

// endpoints is a collector that reads the counts at every scrape.
type endpoints struct {
	total, omitted *prometheus.Desc
	read           func() ([]report.EndpointTotal, int, error)
}

// Describe implements [prometheus.Collector].
func (c *endpoints) Describe(out chan<- *prometheus.Desc) {
	out <- c.total
	out <- c.omitted
}

// Collect implements [prometheus.Collector].
func (c *endpoints) Collect(out chan<- prometheus.Metric) {
	all, omitted, err := c.read()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.total, fmt.Errorf("read connections of endpoints: %w", err))
		return
	}
	out <- prometheus.MustNewConstMetric(c.omitted, prometheus.GaugeValue, float64(omitted))
	for _, n := range all {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n.Connections),
			n.Port.Service.Namespace, n.Port.Service.Name, n.Port.Port,
			strings.ToUpper(n.Port.Protocol.String()), model.EndpointText(n.Endpoint))
	}
}
