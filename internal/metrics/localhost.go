package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature/localhost"
	"github.com/nftproxy/nftproxy/internal/model"
)

// FollowLocalhost exports the state of the listeners for NodePorts on localhost, where the
// configuration asks for them. It is called at most once.
func (s *Set) FollowLocalhost(counts func() localhost.Counts) {
	byFamily := []string{familyLabel}
	s.registry.MustRegister(&localhostCollector{
		counts: counts, families: s.families,
		listeners: prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listeners", "NodePorts that are served on localhost.", byFamily, nil),
		failures: prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
			"Failed attempts to listen on a NodePort on localhost.", byFamily, nil),
		unserved: prometheus.NewDesc("nftproxy_localhost_ports_unserved", "NodePorts that should be served on localhost, but cannot be.", byFamily, nil),
		open:     prometheus.NewDesc("nftproxy_localhost_connections", "Open connections to NodePorts on localhost.", nil, nil),
		total: prometheus.NewDesc("nftproxy_localhost_connections_total",
			"Connections to NodePorts on localhost by result: forwarded, or refused because of a limit (limit), no endpoint (no_endpoint, dial_failed) or a lack of resources (accept_failed).",
			[]string{"result"}, nil),
	})
}

// localhostCollector asks for the state once in a scrape.
type localhostCollector struct {
	counts                                     func() localhost.Counts
	families                                   []model.Family
	listeners, failures, unserved, open, total *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *localhostCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.listeners, c.failures, c.unserved, c.open, c.total} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *localhostCollector) Collect(out chan<- prometheus.Metric) {
	now := c.counts()
	for _, f := range c.families {
		out <- prometheus.MustNewConstMetric(c.listeners, prometheus.GaugeValue, float64(now.Listeners[f]), f.String())
		out <- prometheus.MustNewConstMetric(c.unserved, prometheus.GaugeValue, float64(now.Unserved[f]), f.String())
		out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(now.Failures[f]), f.String())
	}
	out <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(now.Connections))
	for result, n := range now.Total {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n), result.String())
	}
}
