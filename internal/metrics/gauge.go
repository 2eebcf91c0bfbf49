package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// seriesGauge is a gauge whose series are replaced together: a scrape sees a
// consistent set, without stale series.
type seriesGauge struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	series []sample
}

// sample is one series: the values of its labels, in order, and its value.
type sample struct {
	labels []string
	value  float64
}

// set replaces all series. No two may have the same labels.
func (g *seriesGauge) set(series []sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.series = series
}

// Describe implements [prometheus.Collector].
func (g *seriesGauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements [prometheus.Collector].
func (g *seriesGauge) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	series := g.series
	g.mu.Unlock()
	for _, s := range series {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, s.value, s.labels...)
	}
}
