package localhost

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
)

// newCollector exports the counts of a server.
func newCollector(counts func() Counts, n *feature.Node) prometheus.Collector {
	const byFamily = "ip_family"
	listeners := scraped.Gauge("kubeproxy_nftables_localhost_nodeport_listeners", "NodePorts that are served on localhost.", byFamily)
	failures := scraped.Counter("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failed attempts to listen on a NodePort on localhost.", byFamily)
	unserved := scraped.Gauge("nftproxy_localhost_ports_unserved", "NodePorts that should be served on localhost, but cannot be.", byFamily)
	open := scraped.Gauge("nftproxy_localhost_connections", "Open connections to NodePorts on localhost.")
	total := scraped.Counter("nftproxy_localhost_connections_total",
		"Connections to NodePorts on localhost by result: forwarded, or refused because of a limit (limit), no endpoint (no_endpoint, dial_failed) or a lack of resources (accept_failed).",
		"result")
	return scraped.New(func(out scraped.Values) error {
		now := counts()
		for _, f := range n.Serving().Families() {
			out.Add(listeners, float64(now.Listeners[f]), f.String())
			out.Add(unserved, float64(now.Unserved[f]), f.String())
			out.Add(failures, float64(now.Failures[f]), f.String())
		}
		out.Add(open, float64(now.Connections))
		for result, n := range now.Total {
			out.Add(total, float64(n), result.String())
		}
		return nil
	}, listeners, failures, unserved, open, total)
}
