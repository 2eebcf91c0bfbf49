package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// TestKernelsTable: starts in virtual machines have a table of their own, and are in no other
// one.
func TestKernelsTable(t *testing.T) {
	of := func(place string, services int, op results.Operation, d time.Duration) results.Record {
		return results.Record{Program: results.Nftproxy, Services: services, Endpoints: 4, Operation: op, From: results.FromSnapshot, Place: place, Seconds: took(d)}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		of("", 1000, results.ColdStart, time.Hour),
		of("kernel 6.1", 1000, results.ColdStart, 20*time.Millisecond),
		of("kernel 6.1", 1000, results.Resume, 2*time.Millisecond),
		of("kernel 6.1", 1000, results.Restart, 10*time.Millisecond),
		of("kernel 6.12", 1000, results.ColdStart, 20*time.Millisecond),
		of("kernel 6.12", 1000, results.Restart, 30*time.Millisecond),
	}}})
	const want = `
| kernel, services × endpoints | cold start | for each Service | restart | for each Service | / cold start | with a record | / cold start |
|------------------------------|-----------:|-----------------:|--------:|-----------------:|-------------:|--------------:|-------------:|
| kernel 6.1, 1,000 × 4        |      20 ms |            20 µs |   10 ms |            10 µs |         0.50 |        2.0 ms |         0.10 |
| kernel 6.12, 1,000 × 4       |      20 ms |            20 µs |   30 ms |            30 µs |         1.50 |               |              |
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got["kernels"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if table := got["growth"]; strings.Contains(table, "ms") || !strings.Contains(table, "1,000") {
		t.Errorf("the table of real machines is\n%s", table)
	}
}
