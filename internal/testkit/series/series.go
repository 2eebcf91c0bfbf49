// Package series reads metrics as a scrape shows them.
package series

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Expect compares some series of collectors; -1 stands for one that must not be there. It returns all. It fails for a metric
// that has another kind in docs/metrics.md.
func Expect(t testing.TB, want map[string]float64, all ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page := metricsPage(t)
	got := make(map[string]float64)
	for _, f := range families {
		kind := strings.ToLower(f.GetType().String())
		if !regexp.MustCompile("(?m)^\\| `" + f.GetName() + "` \\| " + kind + " \\|").MatchString(page) {
			t.Errorf("docs/metrics.md has no %s %s", kind, f.GetName())
		}
		for _, m := range f.Metric {
			got[f.GetName()+labels(m)] = value(m)
		}
	}
	for name, v := range want {
		if has, found := got[name]; found != (v != -1) || found && has != v {
			t.Errorf("%s is %v (there: %t), want %v", name, has, found, v)
		}
	}
	return got
}

// labels are sorted by name.
func labels(m *dto.Metric) string {
	var all []string
	for _, l := range m.Label {
		all = append(all, l.GetName()+`="`+l.GetValue()+`"`)
	}
	if len(all) == 0 {
		return ""
	}
	return "{" + strings.Join(all, ",") + "}"
}

// value is the sum of a histogram.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Histogram.GetSampleSum()
}

// metricsPage returns docs/metrics.md.
func metricsPage(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if page, err := os.ReadFile(filepath.Join(dir, "docs", "metrics.md")); err == nil {
			return string(page)
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("docs/metrics.md is in no folder above this test")
	return ""
}
