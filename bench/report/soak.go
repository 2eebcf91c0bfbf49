package report

import (
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// soakTable has all long runs, and their sums: runs that were made one after the
// other count together.
func soakTable(files []*results.File) *grid {
	g := &grid{head: []string{"date, services", "time", "changes", "restarts and other disturbances", "requests", "lost",
		"memory at first", "at last", "heap at first", "at last", "files at first", "at last"}}
	var sum results.Soak
	for _, f := range files {
		for i := range f.Records {
			s := f.Records[i].Soak
			if s == nil {
				continue
			}
			g.add(append(soakCounts(f.Date.Format(time.DateOnly)+", "+Count(float64(f.Records[i].Services)), s),
				Bytes(float64(s.First.Anonymous)), Bytes(float64(s.Last.Anonymous)),
				Bytes(float64(s.First.Heap)), Bytes(float64(s.Last.Heap)), fmt.Sprint(s.First.Files), fmt.Sprint(s.Last.Files))...)
			sum = results.Soak{Seconds: sum.Seconds + s.Seconds, Changes: sum.Changes + s.Changes, Disturbances: sum.Disturbances + s.Disturbances,
				Requests: sum.Requests + s.Requests, Lost: sum.Lost + s.Lost}
		}
	}
	if len(g.rows) > 0 {
		g.add(append(soakCounts("all", &sum), "", "", "", "", "", "")...)
	}
	return g
}

func soakCounts(name string, s *results.Soak) []string {
	return []string{name, fmt.Sprintf("%.0f min", s.Seconds/60), Count(float64(s.Changes)), Count(float64(s.Disturbances)),
		Count(float64(s.Requests)), Count(float64(s.Lost))}
}
