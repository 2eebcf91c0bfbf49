package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// TestTableOfChecks puts the memory without checks beside each interval.
func TestTableOfChecks(t *testing.T) {
	of := func(endpoints int, interval, perSecond, processor float64, memory uint64) results.Record {
		return results.Record{
			Program: results.Nftproxy, Services: endpoints / 4, Endpoints: 4, Operation: results.HealthChecks, Period: interval,
			PerSecond: results.Values([]float64{perSecond}), Processor: results.Values([]float64{processor}),
			Sockets: results.Values([]float64{9, 9, 30}), Memory: &results.Memory{Resident: memory},
		}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of(10_000, 0, 0, 0.001, 50<<20), of(10_000, 5, 2000, 0.1, 60<<20), of(1000, 5, 200, 0.01, 40<<20),
	}}})["checks"]
	const want = `
| endpoints | checked every | checks/s | processor | for each check | sockets | at most | memory | without checks |
|-----------|--------------:|---------:|----------:|---------------:|--------:|--------:|-------:|---------------:|
| 10,000    |            5s |    2,000 |      10 % |          50 µs |       9 |      30 | 60 MiB |         50 MiB |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
