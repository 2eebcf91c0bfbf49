package relay

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/tcpproxy"
	"github.com/nftproxy/nftproxy/internal/testkit/series"
)

// TestMetrics: 4.99.
func TestMetrics(t *testing.T) {
	series.Expect(t, map[string]float64{
		`nftproxy_relay_connections`:                             4,
		`nftproxy_relay_connections_total{result="forwarded"}`:   8,
		`nftproxy_relay_connections_total{result="dial_failed"}`: 2,
		`nftproxy_relay_closed_total{reason="limit"}`:            1,
		`nftproxy_relay_retries_total`:                           3,
	}, newCollector(func() tcpproxy.Counts {
		return tcpproxy.Counts{
			Connections: 4, Total: map[tcpproxy.Result]uint64{tcpproxy.Forwarded: 8, tcpproxy.DialFailed: 2},
			Closed: map[tcpproxy.Closure]uint64{tcpproxy.TooMany: 1}, Retried: 3,
		}
	}))
}
