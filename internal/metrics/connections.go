package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/status"
)

// FollowConnections exports the connections of each service port. Each scrape
// calls read, for example [status.Server.ServiceCounts], which must be safe for
// concurrent use. FollowConnections is called at most once.
func (s *Set) FollowConnections(read func() ([]status.ServiceCount, error)) {
	s.registry.MustRegister(&connections{
		desc: prometheus.NewDesc("nftproxy_service_connections_total", "New connections to the frontends of a service port.",
			[]string{"namespace", "service", "port", "protocol", "frontend", familyLabel}, nil),
		read: read,
	})
}

// connections is a collector that reads the counts at every scrape.
type connections struct {
	desc *prometheus.Desc
	read func() ([]status.ServiceCount, error)
}

// Describe implements [prometheus.Collector].
func (c *connections) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements [prometheus.Collector].
func (c *connections) Collect(out chan<- prometheus.Metric) {
	counts, err := c.read()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("read connections of services: %w", err))
		return
	}
	for _, n := range counts {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n.Connections),
			n.Port.Service.Namespace, n.Port.Service.Name, n.Port.Port,
			strings.ToUpper(n.Port.Protocol.String()), frontendLabels[n.Kind], n.Family.String())
	}
}

// frontendLabels are the kinds in one word.
var frontendLabels = [...]string{
	model.ClusterIP: "ClusterIP", model.LoadBalancerIP: "LoadBalancerIP", model.ExternalIP: "ExternalIP", model.NodePort: "NodePort",
}
