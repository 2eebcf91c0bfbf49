package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// newCollector exports the counts of a relay.
func newCollector(counts func() tcpproxy.Counts) prometheus.Collector {
	open := scraped.Gauge("nftproxy_relay_connections", "Open connections to Balances that nftproxy relays.")
	total := scraped.Counter("nftproxy_relay_connections_total",
		"Connections to Balances that nftproxy relays by result: forwarded, or refused because it ended for a newer one (limit), of no server (no_server, dial_failed), a client that dialled the port of the relay itself (not_relayed) or has passed too many relays (loop), or a lack of resources (accept_failed).",
		"result")
	closed := scraped.Counter("nftproxy_relay_closed_total", "Relayed connections that nftproxy ended: for a newer one (limit), or without data (idle).", "reason")
	retried := scraped.Counter("nftproxy_relay_retries_total", "How often nftproxy tried another server for a relayed connection.")
	return scraped.New(func(out scraped.Values) error {
		now := counts()
		out.Add(open, float64(now.Connections))
		for result, n := range now.Total {
			out.Add(total, float64(n), result.String())
		}
		for reason, n := range now.Closed {
			out.Add(closed, float64(n), reason.String())
		}
		out.Add(retried, float64(now.Retried))
		return nil
	}, open, total, closed, retried)
}
