package report

import (
	"fmt"

	"github.com/nftproxy/nftproxy/bench/results"
)

// featureKey is what a record about an optional feature is for.
type featureKey struct{ name, place string }

// featuresTable has what optional features cost a new connection: processor time, and
// instructions if they were counted.
func featuresTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (featureKey, bool) {
		return featureKey{r.Scenario, r.Place}, r.Operation == results.FeatureConnection && r.Cost != nil
	})
	g := &grid{head: []string{"connection to", "compared with", "processor time", "added", "ratio", "instructions", "added"}}
	for _, k := range order {
		if k.place != "" {
			continue
		}
		r, counted := last[k], last[featureKey{k.name, VirtualMachine}]
		row := []string{k.name, "", fmt.Sprintf("%.1f µs", r.Cost.P50*1e6), "", "", "", ""}
		for beside, ratio := range r.Ratios {
			row[1], row[3], row[4] = string(beside), fmt.Sprintf("%+.1f µs", r.Added.P50*1e6), fmt.Sprintf("%.2f", ratio.P50)
		}
		if counted != nil { // each takes a nanosecond there
			row[5] = Count(counted.Cost.P50 * 1e9)
			if counted.Added != nil {
				row[6] = signed(counted.Added.P50 * 1e9)
			}
		}
		g.add(row...)
	}
	return g
}

// signed writes a number with its sign.
func signed(n float64) string {
	if n < 0 {
		return "-" + Count(-n)
	}
	return "+" + Count(n)
}
