package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// TestTablesOfTheProgram: shares are of the stripped file.
func TestTablesOfTheProgram(t *testing.T) {
	part := func(name string, p results.Part) results.Record {
		return results.Record{Operation: results.ProgramSize, Scenario: name, Part: &p}
	}
	got := report.Tables([]*results.File{{Records: []results.Record{
		part(results.StrippedProgram, results.Part{File: 20 << 20}), part(results.WholeProgram, results.Part{File: 30 << 20}),
		part("client-go", results.Part{Code: 1 << 20, Data: 1 << 20}),
		{Operation: results.ProgramStart, Seconds: took(20 * time.Millisecond), Cost: took(10 * time.Millisecond), Memory: &results.Memory{Peak: 20 << 20}},
		{Operation: results.ProgramInit, Scenario: "net/http", Seconds: took(time.Millisecond), Work: &results.Work{Allocations: 1234, AllocatedBytes: 2048}},
	}}})
	for name, want := range map[string]string{
		"program": `
| part                     |    code |    data | together | of the program |
|--------------------------|--------:|--------:|---------:|---------------:|
| the program, stripped    |         |         |   20 MiB |          100 % |
| the program with symbols |         |         |   30 MiB |          150 % |
| client-go                | 1.0 MiB | 1.0 MiB |  2.0 MiB |           10 % |
`,
		"init": `
| start                       | processor time |   time | most memory | allocated | allocations |
|-----------------------------|---------------:|-------:|------------:|----------:|------------:|
| nftproxy version, all of it |          10 ms |        |      20 MiB |           |             |
| initialization of net/http  |                | 1.0 ms |             |   2.0 KiB |       1,234 |
`,
	} {
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
