package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/plot"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

func took(d time.Duration) *results.Distribution { return results.Durations([]time.Duration{d}) }

// sample has results of two benchmarks and, in the first file, an older one.
func sample() []*results.File {
	machine := results.Machine{CPU: "Fast 1", Cores: 2, Memory: 8 << 30, Kernel: "6.18"}
	date := time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)
	of := func(program results.Program, services int, op results.Operation, from results.From, d time.Duration) results.Record {
		return results.Record{Program: program, Services: services, Endpoints: 4, Operation: op, From: from, Seconds: took(d)}
	}
	named := of(results.Nftproxy, 10000, results.ReplaceEndpoint, results.FromSnapshot, 50*time.Microsecond)
	named.Scenario, named.Work = "A", &results.Work{Allocations: 1234, AllocatedBytes: 2048, Transactions: 1, Changes: 1, NetlinkBytes: 152}
	exposed := of(results.Nftproxy, 10000, results.ReplaceEndpoint, results.FromSnapshot, time.Hour)
	exposed.Scenario = "AM"
	memory := func(program results.Program, from results.From, resident uint64) results.Record {
		return results.Record{Program: program, Services: 10000, Endpoints: 4, Operation: results.MemoryUse, From: from, Memory: &results.Memory{Resident: resident}}
	}
	rate := func(program results.Program, services int, op results.Operation, perSecond float64) results.Record {
		return results.Record{Program: program, Services: services, Operation: op, PerSecond: results.Values([]float64{perSecond})}
	}
	watchers := func(program results.Program, op results.Operation, cpu float64) results.Record {
		return results.Record{
			Program: program, Services: 1000, Endpoints: 4, Watchers: 100, Operation: op,
			Seconds: took(time.Second), Memory: &results.Memory{Resident: 1 << 30, Peak: 2 << 30},
			Server: &results.Server{CPU: cpu, Bytes: 1 << 20, Rejected: 3},
		}
	}
	idle := watchers(results.Nftproxy, results.WatchIdle, 0.01)
	idle.Seconds = nil
	return []*results.File{
		{Machine: results.Machine{CPU: "Slow 1", Cores: 1, Memory: 1 << 30, Kernel: "6.1"}, Date: date, Records: []results.Record{
			idle, watchers(results.Nftproxy, results.WatchRestart, 5), watchers(results.KubeProxy, results.WatchRestart, 6),
		}},
		{Machine: machine, Date: date, Versions: map[string]string{"nftproxy": "v1", "kube-proxy": "v2"}, Records: []results.Record{
			of(results.Nftproxy, 1000, results.ReplaceEndpoint, results.FromSnapshot, time.Minute), // replaced below
			of(results.KubeProxy, 10000, results.ReplaceEndpoint, results.FromWrite, 3570*time.Millisecond),
			of(results.Nftproxy, 10000, results.ReplaceEndpoint, results.FromWrite, 2*time.Millisecond),
			memory(results.KubeProxy, "", 381<<20),
			memory(results.Nftproxy, "", 50<<20),
			rate(results.NoRules, 0, results.Connect, 20000),
			rate(results.Nftproxy, 30000, results.Connect, 19000),
			rate(results.NoRules, 0, results.RoundTrip, 100000),
		}},
		{Machine: machine, Date: date, Versions: map[string]string{"nftproxy": "v1"}, Records: []results.Record{
			of(results.Nftproxy, 1000, results.ReplaceEndpoint, results.FromSnapshot, 40*time.Microsecond),
			named, exposed, memory(results.Nftproxy, results.FromSnapshot, 37<<20),
		}},
	}
}

func TestTables(t *testing.T) {
	got := report.Tables(sample())
	for name, want := range map[string]string{
		"machine": `
| date       | processor | cores |  memory | kernel |                   versions |
|------------|----------:|------:|--------:|-------:|---------------------------:|
| 2026-02-03 |    Fast 1 |     2 | 8.0 GiB |   6.18 | kube-proxy v2, nftproxy v1 |
`,
		"times": `
| from snapshot to kernel, median | A: 10,000 × 4 | AM: 10,000 × 4 |
|---------------------------------|--------------:|---------------:|
| replace an endpoint             |         50 µs |         60 min |
`,
		"details": `
|                                    |  n |   p50 |   p95 |   max | allocations | allocated | changes | transactions | netlink |
|------------------------------------|---:|------:|------:|------:|------------:|----------:|--------:|-------------:|--------:|
| A: 10,000 × 4, replace an endpoint |  1 | 50 µs | 50 µs | 50 µs |       1,234 |   2.0 KiB |     1.0 |          1.0 |   152 B |
`,
		"growth": `
| services | cold start | restart, nothing changed | replace an endpoint | scale a service up by one | add a service | delete a service | memory |
|----------|-----------:|-------------------------:|--------------------:|--------------------------:|--------------:|-----------------:|-------:|
| 1,000    |            |                          |               40 µs |                           |               |                  |        |
| 10,000   |            |                          |               50 µs |                           |               |                  | 37 MiB |
`,
		"compare": `
| services × endpoints, operation                 | kube-proxy | nftproxy | kube-proxy / nftproxy |
|-------------------------------------------------|-----------:|---------:|----------------------:|
| 10,000 × 4, replace an endpoint, from API write |      3.6 s |   2.0 ms |                 1,785 |
| 10,000 × 4, memory                              |    381 MiB |   50 MiB |                   7.6 |
`,
		"rates": `
| rules    | services | connections/s | of no rules | round trips/s | of no rules |
|----------|---------:|--------------:|------------:|--------------:|------------:|
| no rules |        0 |        20,000 |       100 % |       100,000 |       100 % |
| nftproxy |   30,000 |        19,000 |        95 % |               |             |
`,
		"memory": "", // no named scenario has it
		"watchers-machine": `
| date       | processor | cores |  memory | kernel | versions |
|------------|----------:|------:|--------:|-------:|---------:|
| 2026-02-03 |    Slow 1 |     1 | 1.0 GiB |    6.1 |          |
`,
		"watchers": `
| operation                | services | watchers | processor time | for each watcher | bytes sent | for each watcher | until a watcher is done: median |  last | answers 429 |
|--------------------------|---------:|---------:|---------------:|-----------------:|-----------:|-----------------:|--------------------------------:|------:|------------:|
| all proxies restart      |    1,000 |      100 |          5.0 s |            50 ms |    1.0 MiB |           10 KiB |                           1.0 s | 1.0 s |           3 |
| a second without changes |    1,000 |      100 |          10 ms |           100 µs |    1.0 MiB |           10 KiB |                                 |       |           3 |
`,
		"watchers-compared": `
| operation           | services | watchers | processor time, kube-proxy | nftproxy | bytes sent, kube-proxy | nftproxy |
|---------------------|---------:|---------:|---------------------------:|---------:|-----------------------:|---------:|
| all proxies restart |    1,000 |      100 |                      6.0 s |    5.0 s |                1.0 MiB |  1.0 MiB |
`,
		"watchers-memory": `
| services | watchers | most while all restart | a minute later |
|----------|---------:|-----------------------:|---------------:|
| 1,000    |      100 |                2.0 GiB |        1.0 GiB |
`,
	} {
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestStartTable takes the ratios from the result file: they come from single runs.
func TestStartTable(t *testing.T) {
	of := func(op results.Operation, d time.Duration, base results.Operation, ratio float64) results.Record {
		return results.Record{
			Program: results.Nftproxy, Scenario: "A", Services: 10000, Endpoints: 4, Operation: op, From: results.FromSnapshot,
			Seconds: took(d), Memory: &results.Memory{Peak: 70 << 20},
			Ratios: map[results.Operation]*results.Distribution{base: results.Values([]float64{ratio})},
		}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of(results.KernelAlone, 80*time.Millisecond, "", 0),
		of(results.ColdStart, 100*time.Millisecond, results.KernelAlone, 1.234),
		of(results.Restart, 50*time.Millisecond, results.ColdStart, 0.51),
		of(results.Resume, 30*time.Millisecond, results.ColdStart, 0.29),
	}}})["start"]
	want := `
| services × endpoints | kernel alone | cold start | / kernel alone | peak memory | restart | / cold start | with a record | / cold start |
|----------------------|-------------:|-----------:|---------------:|------------:|--------:|-------------:|--------------:|-------------:|
| A: 10,000 × 4        |        80 ms |     100 ms |           1.23 |      70 MiB |   50 ms |         0.51 |         30 ms |         0.29 |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChangeTable takes the ratio from the result file, too.
func TestChangeTable(t *testing.T) {
	of := func(op results.Operation, d time.Duration, ratios map[results.Operation]*results.Distribution) results.Record {
		return results.Record{
			Program: results.Nftproxy, Scenario: "A", Services: 10000, Endpoints: 4, Operation: op, From: results.FromSnapshot,
			Seconds: took(d), Work: &results.Work{Allocations: 70}, Ratios: ratios,
		}
	}
	ratios := map[results.Operation]*results.Distribution{results.KernelAloneReplace: results.Values([]float64{5.04})}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of(results.KernelAloneReplace, 6*time.Microsecond, nil), of(results.ReplaceEndpoint, 31*time.Microsecond, ratios),
	}}})["change"]
	want := `
| services × endpoints | kernel alone | replace an endpoint | / kernel alone | allocations |
|----------------------|-------------:|--------------------:|---------------:|------------:|
| A: 10,000 × 4        |       6.0 µs |               31 µs |            5.0 |          70 |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestProcessTable takes the ratios from the result file: they come from single runs.
func TestProcessTable(t *testing.T) {
	of := func(program results.Program, op results.Operation, d time.Duration, ratio float64) results.Record {
		return results.Record{
			Program: program, Scenario: results.Unobserved, Services: 10000, Endpoints: 4, Operation: op, From: results.FromProcess,
			Seconds: took(d), Ratios: map[results.Operation]*results.Distribution{results.ListAndLoad: results.Values([]float64{ratio})},
		}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of(results.Reflectors, results.ListObjects, 300*time.Millisecond, 0),
		of(results.Nftproxy, results.LoadRules, 90*time.Millisecond, 0),
		of(results.Nftproxy, results.ColdStart, 430*time.Millisecond, 1.1),
		of(results.Nftproxy, results.Restart, 390*time.Millisecond, 1.01),
	}}})
	want := `
| services × endpoints | list by client-go |  load | cold start | / list and load | restart | / list and load |
|----------------------|------------------:|------:|-----------:|----------------:|--------:|----------------:|
| 10,000 × 4           |            300 ms | 90 ms |     430 ms |            1.10 |  390 ms |            1.01 |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got["process"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got["compare"] != "" || got["times"] != "" {
		t.Errorf("other tables have the records, too: %s%s", got["compare"], got["times"])
	}
}

func TestFigures(t *testing.T) {
	got := make(map[string][]plot.Line)
	for _, f := range report.Figures(sample()) {
		got[f.Name] = f.Plot.Lines
	}
	want := map[string][]plot.Line{
		"replace-endpoint": {
			{Name: "nftproxy, from snapshot", Points: []plot.Point{{X: 1000, Y: 40e-6}, {X: 10000, Y: 50e-6}}},
			{Name: "nftproxy, from API write", Points: []plot.Point{{X: 10000, Y: 2e-3}}, Colour: 2},
			{Name: "kube-proxy, from API write", Points: []plot.Point{{X: 10000, Y: 3.57}}, Colour: 1},
		},
		"cold-start":     nil,
		"change-service": nil,
		"failover":       nil,
		"memory": {
			{Name: "nftproxy, without a client of the API server", Points: []plot.Point{{X: 10000, Y: 37}}},
			{Name: "nftproxy", Points: []plot.Point{{X: 10000, Y: 50}}, Colour: 2},
			{Name: "kube-proxy", Points: []plot.Point{{X: 10000, Y: 381}}, Colour: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{report.Seconds(0), "0 µs"},
		{report.Seconds(0.0000412), "41 µs"},
		{report.Seconds(0.0000041), "4.1 µs"},
		{report.Seconds(0.00099999), "1.0 ms"},
		{report.Seconds(0.00357), "3.6 ms"},
		{report.Seconds(0.357), "357 ms"},
		{report.Seconds(0.9999), "1.0 s"},
		{report.Seconds(3.57), "3.6 s"},
		{report.Seconds(24.4), "24 s"},
		{report.Seconds(960), "16 min"},
		{report.Bytes(0), "0 B"},
		{report.Bytes(152), "152 B"},
		{report.Bytes(2048), "2.0 KiB"},
		{report.Bytes(1023.9 * 1024), "1.0 MiB"},
		{report.Bytes(381 << 20), "381 MiB"},
		{report.Bytes(24 << 30), "24 GiB"},
		{report.Count(0), "0"},
		{report.Count(999.6), "1,000"},
		{report.Count(1234567), "1,234,567"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestRewrite(t *testing.T) {
	tables := map[string]string{"one": "| 1 |\n", "two": "| 2 |\n", "none": ""}
	page := `# Page
<!-- bench:one -->
old
<!-- /bench --> and
<!-- bench:none -->
stays
<!-- /bench -->
<!-- bench:two -->
<!-- /bench -->
end
`
	want := `# Page
<!-- bench:one -->

| 1 |

<!-- /bench --> and
<!-- bench:none -->
stays
<!-- /bench -->
<!-- bench:two -->

| 2 |

<!-- /bench -->
end
`
	for range 2 { // the second time changes nothing
		got, err := report.Rewrite(page, tables)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		page = got
	}
	for name, page := range map[string]string{
		"unknown table":    "<!-- bench:three -->\n<!-- /bench -->\n",
		"no end":           "<!-- bench:one -->\n",
		"end of the other": "<!-- bench:one -->\n<!-- bench:two -->\n<!-- /bench -->\n",
	} {
		if _, err := report.Rewrite(page, tables); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
