package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// TestTableOfFlows: a row for each program and size, with counters apart; kinds that a
// program does not have are empty.
func TestTableOfFlows(t *testing.T) {
	of := func(p results.Program, services int, counted bool, kind string, cost, ratio float64) results.Record {
		return results.Record{
			Program: p, Services: services, Scenario: kind, Operation: results.NewFlow, Counted: counted, Cost: results.Values([]float64{cost}),
			Ratios: map[results.Operation]*results.Distribution{results.Operation(results.NoRules): results.Values([]float64{ratio})},
		}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of(results.NoRules, 0, false, "TCP", 20e-6, 1), of(results.NoRules, 0, false, "UDP", 10e-6, 1),
		of(results.Nftproxy, 1000, false, "TCP", 25e-6, 1.25), of(results.Nftproxy, 1000, false, "limits", 30e-6, 1.5),
		of(results.Nftproxy, 1000, true, "TCP", 26e-6, 1.3),
		of(results.KubeProxy, 1000, false, "TCP", 27e-6, 1.35),
	}}})["flows"]
	const want = `
| rules                  | services |     TCP | / no rules |     UDP | / no rules | session affinity | / no rules |  limits | / no rules |
|------------------------|---------:|--------:|-----------:|--------:|-----------:|-----------------:|-----------:|--------:|-----------:|
| no rules               |        0 | 20.0 µs |       1.00 | 10.0 µs |       1.00 |                  |            |         |            |
| nftproxy               |    1,000 | 25.0 µs |       1.25 |         |            |                  |            | 30.0 µs |       1.50 |
| nftproxy with counters |    1,000 | 26.0 µs |       1.30 |         |            |                  |            |         |            |
| kube-proxy             |    1,000 | 27.0 µs |       1.35 |         |            |                  |            |         |            |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
