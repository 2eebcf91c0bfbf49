package main

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

var binary string

func TestMain(m *testing.M) { os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run)) }

// TestMeasure measures a small file: each step has its memory, and its processor time.
func TestMeasure(t *testing.T) {
	t.Parallel()
	netlab.TestNamespace(t) // where that is permitted
	p := plan{nftproxy: binary, services: 5, runs: 1}
	all, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*len(steps) {
		t.Errorf("%d records", len(all))
	}
	for _, r := range all {
		for _, m := range []*results.Memory{r.Memory, r.Rested} {
			if m.Anonymous < 1<<20 || m.Resident <= m.Anonymous || r.Cost.P50 <= 0 {
				t.Errorf("%+v: memory %+v, cost %+v", r, m, r.Cost)
			}
		}
	}
}
