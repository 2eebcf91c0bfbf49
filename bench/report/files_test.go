package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// TestTableOfFiles has a row for each step, in the order of the steps.
func TestTableOfFiles(t *testing.T) {
	of := func(flag string, op results.Operation, cost float64, memory uint64) results.Record {
		return results.Record{
			Program: results.Nftproxy, Scenario: flag, Services: 1000, Endpoints: 4, Operation: op, Cost: results.Values([]float64{cost}),
			Memory: &results.Memory{Resident: memory << 20, Anonymous: memory << 19}, Rested: &results.Memory{Resident: 20 << 20, Anonymous: 10 << 20},
		}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of("", results.FileStart, 0.5, 40), of("", results.FileEdits, 0.01, 50), of("", results.FileStatus, 0.2, 60), of("--isolate-files", results.FileStart, 0.6, 44),
	}}})["files"]
	const want = `
| one file                     |          after | processor time of one | memory | anonymous | at rest | anonymous |
|------------------------------|---------------:|----------------------:|-------:|----------:|--------:|----------:|
| 1,000 × 4                    |      the start |                500 ms | 40 MiB |    20 MiB |  20 MiB |    10 MiB |
| 1,000 × 4                    | status -o json |                200 ms | 60 MiB |    30 MiB |  20 MiB |    10 MiB |
| 1,000 × 4                    |      ten edits |                 10 ms | 50 MiB |    25 MiB |  20 MiB |    10 MiB |
| 1,000 × 4, ` + "`--isolate-files`" + ` |      the start |                600 ms | 44 MiB |    22 MiB |  20 MiB |    10 MiB |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
