package localhost

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
	"github.com/nftproxy/nftproxy/internal/testkit/series"
)

// TestMetrics: 6.19, 6.20.
func TestMetrics(t *testing.T) {
	series.Expect(t, map[string]float64{
		`kubeproxy_nftables_localhost_nodeport_listeners{ip_family="IPv4"}`:                        7,
		`kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total{ip_family="IPv6"}`: 9,
		`nftproxy_localhost_ports_unserved{ip_family="IPv6"}`:                                      2,
		`nftproxy_localhost_connections`:                                                           3,
		`nftproxy_localhost_connections_total{result="forwarded"}`:                                 5,
		`nftproxy_localhost_connections_total{result="limit"}`:                                     1,
	}, newCollector(func() Counts {
		return Counts{
			Listeners: map[model.Family]int{model.IPv4: 7}, Unserved: map[model.Family]int{model.IPv6: 2},
			Failures: map[model.Family]uint64{model.IPv6: 9},
			Counts:   tcpproxy.Counts{Connections: 3, Total: map[tcpproxy.Result]uint64{tcpproxy.Forwarded: 5, tcpproxy.Limited: 1}},
		}
	}, new(feature.Node).Serving))
}
