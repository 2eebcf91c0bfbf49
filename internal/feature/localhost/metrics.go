package localhost

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
)

// counted has what a scrape asks for.
type counted interface{ Counts() Counts }

func newCollector(c counted, n *feature.Node) prometheus.Collector {
	byFamily := []string{"ip_family"}
	return &collector{
		counted: c, node: n,
		listeners: prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listeners", "NodePorts that are served on localhost.", byFamily, nil),
		failures: prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
			"Failed attempts to listen on a NodePort on localhost.", byFamily, nil),
		unserved: prometheus.NewDesc("nftproxy_localhost_ports_unserved", "NodePorts that should be served on localhost, but cannot be.", byFamily, nil),
		open:     prometheus.NewDesc("nftproxy_localhost_connections", "Open connections to NodePorts on localhost.", nil, nil),
		total: prometheus.NewDesc("nftproxy_localhost_connections_total",
			"Connections to NodePorts on localhost by result: forwarded, or refused because of a limit (limit), no endpoint (no_endpoint, dial_failed) or a lack of resources (accept_failed).",
			[]string{"result"}, nil),
	}
}

// collector asks for the state once in a scrape.
type collector struct {
	counted
	node                                       *feature.Node
	listeners, failures, unserved, open, total *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.listeners, c.failures, c.unserved, c.open, c.total} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	now := c.Counts()
	for _, f := range c.node.Serving().Families() {
		out <- prometheus.MustNewConstMetric(c.listeners, prometheus.GaugeValue, float64(now.Listeners[f]), f.String())
		out <- prometheus.MustNewConstMetric(c.unserved, prometheus.GaugeValue, float64(now.Unserved[f]), f.String())
		out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(now.Failures[f]), f.String())
	}
	out <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(now.Connections))
	for result, n := range now.Total {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n), result.String())
	}
}
