package report_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// balanced has what was measured of two load balancers.
func balanced() []*results.File {
	one := func(v float64) *results.Distribution { return results.Values([]float64{v}) }
	var records []results.Record
	for p, factor := range map[results.Program]float64{"none": 1, "HAProxy": 2} {
		for _, op := range []results.Operation{results.BalancedConnection, results.BalancedRequest, results.BalancedGigabit} {
			records = append(records, results.Record{Program: p, Services: 1, Operation: op, Place: report.VirtualMachine,
				PerSecond: one(1000 / factor), Cost: one(1e-3 * factor), Seconds: one(1e-3), Tail: one(2e-3)})
		}
	}
	for _, services := range []int{1, 1000} {
		records = append(records,
			results.Record{Program: "HAProxy", Services: services, Operation: results.BalancerStart, Place: report.VirtualMachine,
				Seconds: one(0.1), Memory: &results.Memory{Resident: 4 << 20, Kernel: 2 << 20}},
			results.Record{Program: "HAProxy", Scenario: "reload", Services: services, Operation: results.BalancerChange,
				Place: report.VirtualMachine, Seconds: one(0.2)})
	}
	records = append(records, results.Record{Program: "HAProxy", Scenario: "is silent", Services: 1, Operation: results.BalancerFailover,
		Place: report.VirtualMachine, Seconds: one(2.5),
		Failover: &results.Failover{Requests: one(400), Failed: one(40), Slowest: one(1), Curve: []int{3, 7}}})
	return []*results.File{{Records: records}}
}

func TestBalancers(t *testing.T) {
	tables := report.Tables(balanced())
	for name, want := range map[string]string{
		"balancers-rates":  "| HAProxy  |           500 |    50 % |        500 |    50 % | 1.0 ms | 2.0 ms |    500 |    50 % |",
		"services-virtual": "| HAProxy  |           100 ms |         100 ms |              4.0 MiB |        4.0 MiB |                2.0 MiB |     reload |            200 ms |         200 ms |",
		"failover-virtual": "| HAProxy  |                40 of 400 |              2.5 s |          1.0 s |",
	} {
		if !strings.Contains(tables[name], want) {
			t.Errorf("%s:\n%s\nlacks\n%s", name, tables[name], want)
		}
	}
	if tables["balancers-cost"] != "" {
		t.Errorf("results of a virtual machine are among those of a real one:\n%s", tables["balancers-cost"])
	}
	for _, f := range report.Figures(balanced()) {
		if f.Name == "failover" && (len(f.Plot.Lines) != 1 || len(f.Plot.Lines[0].Points) != 3 || f.Plot.Lines[0].Points[2].Y != 7) {
			t.Errorf("plot has lines %v", f.Plot.Lines)
		}
	}
}

// TestFastPath: the fast path is compared with figures of the same run, which do not replace those
// of a run of all load balancers.
func TestFastPath(t *testing.T) {
	const fast = "nftproxy with its fast path"
	file := func(rates map[results.Program]float64) *results.File {
		f := &results.File{}
		for p, rate := range rates {
			v := results.Values([]float64{rate})
			for _, op := range []results.Operation{results.BalancedConnection, results.BalancedRequest, results.BalancedGigabit} {
				f.Records = append(f.Records, results.Record{Program: p, Services: 1, Operation: op, Place: report.VirtualMachine,
					PerSecond: v, Cost: v, Seconds: results.Values([]float64{1 / rate}), Tail: results.Values([]float64{2 / rate})})
			}
		}
		return f
	}
	all, own := file(map[results.Program]float64{"none": 100, "nftproxy": 90, "HAProxy": 50}), file(map[results.Program]float64{"none": 1000, "nftproxy": 800, fast: 1100})
	tables := report.Tables([]*results.File{all, own})
	check := func(name, text string, want bool) {
		t.Helper()
		if strings.Contains(tables[name], text) != want {
			t.Errorf("%s: want %q: %t, got\n%s", name, text, want, tables[name])
		}
	}
	check("fast-path", fast, true)
	check("fast-path", " 110 % ", true)
	check("fast-path", " 80 % ", true)
	check("fast-path", " 138 % ", true) // new connections, of nftproxy
	check("fast-path", "HAProxy", false)
	check("balancers-rates", fast, false)
	check("balancers-rates", " 90 % ", true)

	all.Records = append(all.Records, own.Records...) // a run of all has the fast path, too
	tables = report.Tables([]*results.File{all})
	check("fast-path", "HAProxy", false)
	check("balancers-rates", fast, true)
}
