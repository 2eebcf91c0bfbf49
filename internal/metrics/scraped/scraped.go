// Package scraped makes metrics whose values are read in each scrape.
package scraped

import "github.com/prometheus/client_golang/prometheus"

// Metric is a metric by its name and labels.
type Metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Gauge returns a metric whose value rises and falls.
func Gauge(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// Counter returns a metric whose value rises.
func Counter(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Values receives the values of a scrape.
type Values chan<- prometheus.Metric

// Add adds a value of a metric with the values of its labels.
func (v Values) Add(m Metric, value float64, labels ...string) {
	v <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// Collector reads the values of metrics in each scrape.
type Collector struct {
	read    func(Values) error
	metrics []Metric
}

// New returns a collector of metrics. Scrapes call read concurrently. After an error, the first metric has no value, and the scrape logs why.
func New(read func(Values) error, metrics ...Metric) *Collector { return &Collector{read, metrics} }

func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
}

func (c *Collector) Collect(out chan<- prometheus.Metric) {
	if err := c.read(out); err != nil {
		out <- prometheus.NewInvalidMetric(c.metrics[0].desc, err)
	}
}

func Yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
