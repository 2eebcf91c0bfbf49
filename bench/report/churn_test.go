package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// churn is a record of a program under continuous changes.
func churn(p results.Program, rate, period float64, delay time.Duration, processor float64) results.Record {
	return results.Record{
		Program: p, Services: 3000, Endpoints: 4, Operation: results.Churn, From: results.FromEvent, Rate: rate, Period: period,
		Seconds: took(delay), Processor: results.Values([]float64{processor}), PerSecond: results.Values([]float64{9}),
	}
}

func atRest(p results.Program, scenario string, wakeups, processor float64) results.Record {
	return results.Record{
		Program: p, Scenario: scenario, Services: 3000, Endpoints: 4, Operation: results.Rest,
		PerSecond: results.Values([]float64{wakeups}), Processor: results.Values([]float64{processor}),
	}
}

func TestTablesOfChurn(t *testing.T) {
	got := report.Tables([]*results.File{{Records: []results.Record{
		atRest(results.KubeProxy, "", 3.2, 0.0012), atRest(results.Nftproxy, "", 0.1, 0.00004), atRest(results.Nftproxy, "from a file", 0.03, 0),
		churn(results.KubeProxy, 500, 0, 2*time.Second, 0.4), churn(results.Nftproxy, 500, 0, 50*time.Millisecond, 0.05),
		churn(results.KubeProxy, 20, 1, time.Second, 0.3),
		churn(results.Nftproxy, 20, 0.01, 5*time.Millisecond, 0.008), churn(results.Nftproxy, 100, 0.01, 6*time.Millisecond, 0.034),
	}}})
	for name, want := range map[string]string{
		"rest": `
| services × endpoints                     | kube-proxy | nftproxy | kube-proxy / nftproxy |
|------------------------------------------|-----------:|---------:|----------------------:|
| 3,000 × 4, wakeups a second              |       3.20 |     0.10 |                    32 |
| 3,000 × 4, processor                     |      0.1 % |   0.00 % |                    30 |
| from a file: 3,000 × 4, wakeups a second |            |     0.03 |                       |
| from a file: 3,000 × 4, processor        |            |   0.00 % |                       |
`,
		"churn": `
| services × endpoints                                 | kube-proxy | nftproxy | kube-proxy / nftproxy |
|------------------------------------------------------|-----------:|---------:|----------------------:|
| 3,000 × 4, 500 changes/s, processor                  |       40 % |    5.0 % |                   8.0 |
| 3,000 × 4, 500 changes/s, delay behind the API event |      2.0 s |    50 ms |                    40 |
| 3,000 × 4, 500 changes/s, transactions a second      |        9.0 |      9.0 |                   1.0 |
`,
		"period": `
| minimum time between syncs | 20 changes/s: delay | processor | 100 changes/s: delay | processor |
|----------------------------|--------------------:|----------:|---------------------:|----------:|
| kube-proxy, 1s             |               1.0 s |      30 % |                      |           |
| nftproxy, 10ms             |              5.0 ms |     0.8 % |               6.0 ms |     3.4 % |
`,
	} {
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestTableOfSoaks: runs of several files add up.
func TestTableOfSoaks(t *testing.T) {
	run := func(requests, lost int) *results.File {
		return &results.File{Date: time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), Records: []results.Record{{
			Services: 2000, Operation: results.LongRun, Soak: &results.Soak{
				Seconds: 600, Changes: 20_000, Disturbances: 50, Requests: requests, Lost: lost,
				First: results.Held{Anonymous: 50 << 20, Heap: 20 << 20, Files: 15}, Last: results.Held{Anonymous: 51 << 20, Heap: 20 << 20, Files: 16},
			},
		}}}
	}
	got := report.Tables([]*results.File{run(500_000, 0), run(400_000, 1)})["soak"]
	const want = `
| date, services    |   time | changes | restarts and other disturbances | requests | lost | memory at first | at last | heap at first | at last | files at first | at last |
|-------------------|-------:|--------:|--------------------------------:|---------:|-----:|----------------:|--------:|--------------:|--------:|---------------:|--------:|
| 2026-02-03, 2,000 | 10 min |  20,000 |                              50 |  500,000 |    0 |          50 MiB |  51 MiB |        20 MiB |  20 MiB |             15 |      16 |
| 2026-02-03, 2,000 | 10 min |  20,000 |                              50 |  400,000 |    1 |          50 MiB |  51 MiB |        20 MiB |  20 MiB |             15 |      16 |
| all               | 20 min |  40,000 |                             100 |  900,000 |    1 |                 |         |               |         |                |         |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
