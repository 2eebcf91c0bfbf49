package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/model"
)

// maxStarting is how many Services with endpoints that start slowly have a series of their own: a
// machine that returns may bring endpoints of all.
const maxStarting = 100

// FollowStarting exports how many endpoints of Services start slowly. Each scrape calls counts, for
// example [report.Server.StartingCounts], which must be safe for concurrent use. FollowStarting is
// called at most once.
func (s *Set) FollowStarting(counts func() map[model.ServiceName]int) {
	s.registry.MustRegister(&startingCollector{counts, prometheus.NewDesc("nftproxy_slow_start_endpoints",
		"Endpoints of a Service that start slowly, for at most 100 Services that have such; the others together have no names.", []string{"namespace", "service"}, nil)})
}

// startingCollector asks for the counts once in a scrape.
type startingCollector struct {
	counts func() map[model.ServiceName]int
	desc   *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *startingCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements [prometheus.Collector].
func (c *startingCollector) Collect(out chan<- prometheus.Metric) {
	counts := c.counts()
	rest := 0
	for _, n := range counts {
		rest += n
	}
	add := func(namespace, name string, n int) {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), namespace, name)
	}
	for _, name := range descending(counts, maxStarting) {
		add(name.Namespace, name.Name, counts[name])
		rest -= counts[name]
	}
	if rest > 0 {
		add("", "", rest)
	}
}
