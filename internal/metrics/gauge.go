package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// seriesGauge is a gauge whose series are replaced together: a scrape sees those
// of one moment, and none of something that is gone.
type seriesGauge struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	series []sample
}

// sample is one series: the values of the labels, in order, and its own.
type sample struct {
	labels []string
	value  float64
}

func newSeriesGauge(registry *prometheus.Registry, name, help string, labels ...string) *seriesGauge {
	g := &seriesGauge{desc: prometheus.NewDesc(name, help, labels, nil)}
	registry.MustRegister(g)
	return g
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
