package report_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

func TestFeatures(t *testing.T) {
	one := func(v float64) *results.Distribution { return results.Values([]float64{v}) }
	of := func(name string, cost float64) results.Record {
		return results.Record{Program: results.Nftproxy, Scenario: name, Operation: results.FeatureConnection, Cost: one(cost)}
	}
	beside := func(r results.Record, added, ratio float64) results.Record {
		r.Added, r.Ratios = one(added), map[results.Operation]*results.Distribution{"ClusterIP": one(ratio)}
		return r
	}
	tables := report.Tables([]*results.File{{Records: []results.Record{
		of("ClusterIP", 25e-6), beside(of("ping", 26e-6), 1e-6, 1.04), beside(of("limits", 24e-6), -1e-6, 0.96),
	}}})
	for _, want := range []string{
		"| ClusterIP     |               |        25.0 µs |         |       |",
		"| ping          |     ClusterIP |        26.0 µs | +1.0 µs |  1.04 |",
		"| limits        |     ClusterIP |        24.0 µs | -1.0 µs |  0.96 |",
	} {
		if !strings.Contains(tables["features"], want) {
			t.Errorf("%s\nlacks\n%s", tables["features"], want)
		}
	}
}
