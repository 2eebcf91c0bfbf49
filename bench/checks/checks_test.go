package main

import (
	"os"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

var binary string

func TestMain(m *testing.M) { os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run)) }

// TestMeasure measures few endpoints: checks are made where they are asked for, and nowhere
// else.
func TestMeasure(t *testing.T) {
	t.Parallel()
	netlab.TestNamespace(t) // where that is permitted
	p := plan{nftproxy: binary, dir: t.TempDir(), sizes: []int{8}, intervals: []time.Duration{100 * time.Millisecond}, rounds: 2, runs: 1}
	all, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, checked := range []bool{false, true} {
		r := all[i]
		if (r.PerSecond.P50 > 0) != checked || (r.Period > 0) != checked || r.Memory.Resident == 0 || r.Services != 2 || r.Operation != results.HealthChecks {
			t.Errorf("checks %v: got %+v, %+v", checked, r, r.PerSecond)
		}
	}
}

// TestParse refuses what it could not measure.
func TestParse(t *testing.T) {
	for _, c := range []struct{ sizes, intervals string }{{"5", "1s"}, {"0", "1s"}, {"100000", "1s"}, {"x", "1s"}, {"8", "1"}} {
		if err := new(plan).parse(c.sizes, c.intervals); err == nil {
			t.Errorf("%q endpoints every %q are no error", c.sizes, c.intervals)
		}
	}
}
