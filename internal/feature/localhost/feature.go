package localhost

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(n *feature.Node) feature.Feature {
	if len(n.Config.Node.Localhost()) == 0 {
		return nil
	}
	return New(Config{
		Target: func(f model.Frontend) (netip.AddrPort, bool) { return n.Serving().BehindLocalhost(f) },
		Failed: n.Events.LocalhostFailed, Limits: descriptors.Localhost(), Families: func() []model.Family { return n.Serving().Families() }, Log: n.ObjectLog,
	})
}

// FollowSync implements [feature.Observer].
func (s *Server) FollowSync(f *feature.Sync) {
	if f.Err == nil {
		s.Update(f.Routes)
	}
}

// Problems implements [feature.Reporter]: a line for each cause and address of ports that cannot be opened.
func (s *Server) Problems(time.Time) []model.Notice {
	return feature.OfMachine(model.LocalhostPort, s.problems()...)
}

// Collectors implements [feature.Counter].
func (s *Server) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(s.Counts, s.Families)}
}

func newCollector(counts func() Counts, families func() []model.Family) prometheus.Collector {
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
		for _, f := range families() {
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
