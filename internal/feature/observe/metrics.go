package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// newCollector exports what was read of the log of the rules.
func newCollector(state func() traffic.State) prometheus.Collector {
	events := scraped.Counter("nftproxy_observe_events_total", "Messages of the rules about refused connections that were read, which are samples, by reason.", "reason")
	lost := scraped.Counter("nftproxy_observe_lost_total", "Messages of the rules about refused connections that the kernel has dropped because they were not read fast enough.")
	up := scraped.Gauge("nftproxy_observe_up", "1 if messages of the rules about refused connections are read, else 0; the status says why not.")
	return scraped.New(func(out scraped.Values) error {
		now := state()
		out.Add(up, scraped.Yes(now.Err == nil))
		out.Add(lost, float64(now.Lost))
		for reason, n := range now.Events {
			out.Add(events, float64(n), reason)
		}
		return nil
	}, events, lost, up)
}

// newSampleCollector exports how many samples of connections endpoints have answered.
func newSampleCollector(totals func() []traffic.SampleTotal) prometheus.Collector {
	sampled := scraped.Counter("nftproxy_sampled_connections_total",
		"Samples of TCP connections to a Service, by what their endpoint did within two seconds: answered, refused or unanswered; dropped were lost on the machine.",
		"namespace", "service", "outcome")
	return scraped.New(func(out scraped.Values) error {
		for _, t := range totals() {
			for o, n := range t.Outcomes {
				out.Add(sampled, float64(n), t.Service.Namespace, t.Service.Name, conntrack.Outcome(o).String())
			}
		}
		return nil
	}, sampled)
}
