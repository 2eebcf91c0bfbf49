package metrics

import (
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ServiceCount is how many connections the frontends of one kind accepted for a
// service port.
type ServiceCount struct {
	Port        model.PortName
	Family      model.Family
	Kind        model.Kind
	Connections uint64
}

// FollowConnections exports the connections of each service port. read is
// called at every scrape; calls do not overlap. It is called at
// most once.
func (s *Set) FollowConnections(read func() ([]ServiceCount, error)) {
	s.registry.MustRegister(&connections{
		desc: prometheus.NewDesc("nftproxy_service_connections_total", "New connections to the frontends of a service port.",
			[]string{"namespace", "service", "port", "protocol", "frontend", familyLabel}, nil),
		read: read,
	})
}

// connections is a collector that reads when it is scraped.
type connections struct {
	desc *prometheus.Desc

	mu   sync.Mutex
	read func() ([]ServiceCount, error)
}

// Describe implements [prometheus.Collector].
func (c *connections) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements [prometheus.Collector]. Counts of the same kind are added.
func (c *connections) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	counts, err := c.read()
	c.mu.Unlock()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("read connections of services: %w", err))
		return
	}
	total := make(map[ServiceCount]uint64)
	for _, n := range counts {
		key := n
		key.Connections = 0
		total[key] += n.Connections
	}
	for n, sum := range total {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(sum),
			n.Port.Service.Namespace, n.Port.Service.Name, n.Port.Port,
			strings.ToUpper(n.Port.Protocol.String()), frontendLabel(n.Kind), n.Family.String())
	}
}

// frontendLabel returns a kind in one word.
func frontendLabel(k model.Kind) string {
	switch k {
	case model.ExternalIP:
		return "ExternalIP"
	case model.LoadBalancerIP:
		return "LoadBalancerIP"
	}
	return k.String()
}
