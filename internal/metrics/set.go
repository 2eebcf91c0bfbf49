// Package metrics exports Prometheus metrics of the process: the series that
// dashboards and alerts for kube-proxy use, under the same names, and its own, with
// the name prefix nftproxy_. docs/metrics.md lists all of them.
//
// Numbers such as 11.7 refer to docs/behaviour.md.
package metrics

import (
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
)

// familyLabel is the label for the IP family, with the values IPv4 and IPv6.
const familyLabel = "ip_family"

// Set holds the metrics of a process, in registries of its own. It is safe for
// concurrent use. Its methods record events; scrapes read the rest.
type Set struct {
	families []model.Family
	log      *slog.Logger

	registry *prometheus.Registry
	syncs    syncMetrics
	rules    ruleMetrics
	answers  answerMetrics
	clean    cleanMetrics
}

// New returns the metrics of a program of that version that serves these
// families; none means both.
func New(version string, families []model.Family, log *slog.Logger) *Set {
	if len(families) == 0 {
		families = model.Families[:]
	}
	m := newMaker()
	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// Kubernetes components export all metrics of the runtime (11.9).
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
	)
	info, _ := debug.ReadBuildInfo()
	buildOf(version, info).exportBuild(m)
	return &Set{
		families: slices.Clone(families),
		log:      log,
		registry: m.registry,
		syncs:    newSyncMetrics(m),
		rules:    newRuleMetrics(m),
		answers:  newAnswerMetrics(m),
		clean:    newCleanMetrics(m),
	}
}

// Add exports metrics.
func (s *Set) Add(all ...prometheus.Collector) { s.registry.MustRegister(all...) }

// Describe returns all metrics, also those that have no series yet.
func (s *Set) Describe(out chan<- *prometheus.Desc) {
	s.registry.Describe(out)
	s.answers.slis.Describe(out)
}

type maker struct {
	registry *prometheus.Registry
	promauto.Factory
}

func newMaker() maker {
	registry := prometheus.NewRegistry()
	return maker{registry, promauto.With(registry)}
}

func (m maker) newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return m.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (m maker) newGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m maker) newHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// series is a gauge whose values are replaced together: a scrape sees a consistent set, without stale series.
type series struct{ all atomic.Pointer[[]sample] }

// sample is one series: the values of its labels, in order, and its value.
type sample struct {
	labels []string
	value  float64
}

func (m maker) newSeries(name, help string, labels ...string) *series {
	out, metric := &series{}, scraped.Gauge(name, help, labels...)
	out.set(nil)
	m.registry.MustRegister(scraped.New(func(to scraped.Values) error {
		for _, s := range *out.all.Load() {
			to.Add(metric, s.value, s.labels...)
		}
		return nil
	}, metric))
	return out
}

// set replaces all series. No two may have the same labels.
func (s *series) set(all []sample) { s.all.Store(&all) }
