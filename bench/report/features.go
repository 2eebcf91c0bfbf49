package report

import (
	"fmt"

	"github.com/nftproxy/nftproxy/bench/results"
)

// featuresTable has what optional features cost a new connection.
func featuresTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (string, bool) {
		return r.Scenario, r.Operation == results.FeatureConnection && r.Cost != nil
	})
	g := &grid{head: []string{"connection to", "compared with", "processor time", "added", "ratio"}}
	for _, name := range order {
		r := last[name]
		row := []string{name, "", fmt.Sprintf("%.1f µs", r.Cost.P50*1e6), "", ""}
		for beside, ratio := range r.Ratios {
			row[1], row[3], row[4] = string(beside), fmt.Sprintf("%+.1f µs", r.Added.P50*1e6), fmt.Sprintf("%.2f", ratio.P50)
		}
		g.add(row...)
	}
	return g
}
