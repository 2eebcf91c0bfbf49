package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/traffic"
)

// FollowTraffic exports what was read of the connections that the rules refuse. It is called at
// most once.
func (s *Set) FollowTraffic(state func() traffic.State) {
	s.registry.MustRegister(&trafficCollector{
		state: state,
		events: prometheus.NewDesc("nftproxy_observe_events_total", "Messages of the rules about refused connections that were read, which are samples, by reason.",
			[]string{"reason"}, nil),
		lost: prometheus.NewDesc("nftproxy_observe_lost_total", "Messages of the rules about refused connections that the kernel has dropped because they were not read fast enough.", nil, nil),
		up:   prometheus.NewDesc("nftproxy_observe_up", "1 if messages of the rules about refused connections are read, else 0; the status says why not.", nil, nil),
	})
}

// trafficCollector asks for the state once in a scrape.
type trafficCollector struct {
	state            func() traffic.State
	events, lost, up *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *trafficCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.events, c.lost, c.up} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *trafficCollector) Collect(out chan<- prometheus.Metric) {
	now, up := c.state(), 1.0
	if now.Err != nil {
		up = 0
	}
	out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
	out <- prometheus.MustNewConstMetric(c.lost, prometheus.CounterValue, float64(now.Lost))
	for reason, n := range now.Events {
		out <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(n), reason)
	}
}

// FollowSamples exports how many samples of connections endpoints have answered. It is called
// at most once.
func (s *Set) FollowSamples(totals func() []traffic.SampleTotal) {
	s.registry.MustRegister(&sampleCollector{totals})
}

var sampledConnections = prometheus.NewDesc("nftproxy_sampled_connections_total",
	"Samples of TCP connections to a Service, by what their endpoint did within two seconds: answered, refused or unanswered; dropped were lost on the machine.",
	[]string{"namespace", "service", "outcome"}, nil)

type sampleCollector struct{ totals func() []traffic.SampleTotal }

// Describe implements [prometheus.Collector].
func (c *sampleCollector) Describe(out chan<- *prometheus.Desc) { out <- sampledConnections }

// Collect implements [prometheus.Collector].
func (c *sampleCollector) Collect(out chan<- prometheus.Metric) {
	for _, t := range c.totals() {
		for o, n := range t.Outcomes {
			out <- prometheus.MustNewConstMetric(sampledConnections, prometheus.CounterValue, float64(n), t.Service.Namespace, t.Service.Name, conntrack.Outcome(o).String())
		}
	}
}
