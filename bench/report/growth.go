package report

import (
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/bench/results"
)

// growthTable has what the plots show of nftproxy from the snapshot, as numbers.
func growthTable(files []*results.File) *grid {
	columns := []struct {
		operation results.Operation
		value     func(*results.Record) (float64, bool)
		format    func(float64) string
	}{
		{results.ColdStart, seconds, Seconds},
		{results.Restart, seconds, Seconds},
		{results.ReplaceEndpoint, seconds, Seconds},
		{results.ScaleUp, seconds, Seconds},
		{results.AddService, seconds, Seconds},
		{results.DeleteService, seconds, Seconds},
		{results.MemoryUse, resident, Bytes},
	}
	g := &grid{head: []string{"services"}}
	rows := make(map[float64][]string)
	for i, c := range columns {
		g.head = append(g.head, string(c.operation))
		for _, p := range curves(files, c.operation, c.value)[subject{results.Nftproxy, results.FromSnapshot}] {
			if rows[p.X] == nil {
				rows[p.X] = make([]string, len(columns))
			}
			rows[p.X][i] = c.format(p.Y)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		g.add(append([]string{Count(n)}, rows[n]...)...)
	}
	return g
}
