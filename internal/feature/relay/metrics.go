package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// counted has what a scrape asks for.
type counted interface{ Counts() tcpproxy.Counts }

func newCollector(c counted) prometheus.Collector {
	return &collector{
		counted: c,
		open:    prometheus.NewDesc("nftproxy_relay_connections", "Open connections to Balances that nftproxy relays.", nil, nil),
		total: prometheus.NewDesc("nftproxy_relay_connections_total",
			"Connections to Balances that nftproxy relays by result: forwarded, or refused because it ended for a newer one (limit), of no server (no_server, dial_failed), a client that dialled the port of the relay itself (not_relayed) or has passed too many relays (loop), or a lack of resources (accept_failed).",
			[]string{"result"}, nil),
		closed:  prometheus.NewDesc("nftproxy_relay_closed_total", "Relayed connections that nftproxy ended: for a newer one (limit), or without data (idle).", []string{"reason"}, nil),
		retried: prometheus.NewDesc("nftproxy_relay_retries_total", "How often nftproxy tried another server for a relayed connection.", nil, nil),
	}
}

// collector asks for the state once in a scrape.
type collector struct {
	counted
	open, total, closed, retried *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.total, c.closed, c.retried} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	now := c.Counts()
	out <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(now.Connections))
	for result, n := range now.Total {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n), result.String())
	}
	for reason, n := range now.Closed {
		out <- prometheus.MustNewConstMetric(c.closed, prometheus.CounterValue, float64(n), reason.String())
	}
	out <- prometheus.MustNewConstMetric(c.retried, prometheus.CounterValue, float64(now.Retried))
}
