package report

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/bench/results"
)

// kernelsTable has starts on several kernels, in virtual machines that count instructions.
func kernelsTable(files []*results.File) *grid {
	type cell struct {
		place     string
		services  int
		operation results.Operation
	}
	order, last := latest(files, func(r *results.Record) (cell, bool) {
		starts := []results.Operation{results.ColdStart, results.Restart, results.Resume}
		return cell{r.Place, r.Services, r.Operation}, r.Place != "" && r.From == results.FromSnapshot && slices.Contains(starts, r.Operation)
	})
	g := &grid{head: []string{"kernel, services × endpoints", "cold start", "for each Service", "restart", "for each Service", "/ cold start", "with a record", "/ cold start"}}
	for _, c := range order {
		if c.operation != results.ColdStart {
			continue
		}
		cold := last[c]
		row := []string{fmt.Sprintf("%s, %s × %d", c.place, Count(float64(c.services)), cold.Endpoints),
			Seconds(cold.Seconds.P50), Seconds(cold.Seconds.P50 / float64(c.services))}
		for _, op := range []results.Operation{results.Restart, results.Resume} {
			r := last[cell{c.place, c.services, op}]
			if r == nil {
				row = append(row, "", "")
				continue
			}
			row = append(row, Seconds(r.Seconds.P50))
			if op == results.Restart {
				row = append(row, Seconds(r.Seconds.P50/float64(c.services)))
			}
			row = append(row, fmt.Sprintf("%.2f", r.Seconds.P50/cold.Seconds.P50))
		}
		if len(row) == len(g.head) {
			g.add(row...)
		}
	}
	return g
}
