package report

import (
	"fmt"

	"github.com/nftproxy/nftproxy/bench/results"
)

// flowKinds are the columns of the table of flows.
var flowKinds = []string{"TCP", "UDP", "session affinity", "limits"}

// flowsTable has the processor time of new flows, and how many times as much that is as
// without rules.
func flowsTable(files []*results.File) *grid {
	type way struct {
		program  results.Program
		services int
		counted  bool
	}
	type cell struct {
		way
		kind string
	}
	order, last := latest(files, func(r *results.Record) (cell, bool) {
		return cell{way{r.Program, r.Services, r.Counted}, r.Scenario}, r.Operation == results.NewFlow
	})
	g := &grid{head: []string{"rules", "services"}}
	for _, k := range flowKinds {
		g.head = append(g.head, k, "/ no rules")
	}
	var before *way
	for _, c := range order {
		if before != nil && c.way == *before {
			continue // all kinds are in one row
		}
		before = &c.way
		name := string(c.program)
		if c.counted {
			name += " with counters"
		}
		row := []string{name, Count(float64(c.services))}
		for _, k := range flowKinds {
			if r := last[cell{c.way, k}]; r != nil {
				row = append(row, fmt.Sprintf("%.1f µs", r.Cost.P50*1e6), fmt.Sprintf("%.2f", r.Ratios[results.Operation(results.NoRules)].P50))
			} else {
				row = append(row, "", "")
			}
		}
		g.add(row...)
	}
	return g
}
