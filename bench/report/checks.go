package report

import (
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// checking is a number of endpoints that are checked at an interval.
type checking struct {
	endpoints int
	interval  float64 // seconds; 0: they are not checked
}

// checksTable has what health checks cost the daemon, beside the same endpoints without.
func checksTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (checking, bool) {
		return checking{r.Services * r.Endpoints, r.Period}, r.Operation == results.HealthChecks
	})
	g := &grid{head: []string{"endpoints", "checked every", "checks/s", "processor", "for each check", "sockets", "at most", "memory", "without checks"}}
	for _, c := range order {
		r, without := last[c], last[checking{endpoints: c.endpoints}]
		if c.interval == 0 || without == nil {
			continue
		}
		g.add(Count(float64(c.endpoints)), time.Duration(c.interval*float64(time.Second)).String(), Count(r.PerSecond.P50), percent(r.Processor.P50),
			Seconds(r.Processor.P50/r.PerSecond.P50), Count(r.Sockets.P50), Count(r.Sockets.Max), known(r.Memory.Resident), known(without.Memory.Resident))
	}
	return g
}
