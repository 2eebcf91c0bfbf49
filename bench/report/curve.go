package report

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/bench/plot"
	"github.com/nftproxy/nftproxy/bench/results"
)

// subject is the program that is measured, and how.
type subject struct {
	program results.Program
	from    results.From
}

// String names the subject in legends and table heads.
func (s subject) String() string {
	if s.from == "" {
		return string(s.program)
	}
	return string(s.program) + ", from " + string(s.from)
}

func (s subject) compare(o subject) int {
	return cmp.Or(-cmp.Compare(s.program, o.program), -cmp.Compare(s.from, o.from))
}

// curveEndpoints is the number of endpoints of each Service in curves.
const curveEndpoints = 4

// seconds and resident are what curves are about.
func seconds(r *results.Record) (float64, bool) {
	if r.Seconds == nil {
		return 0, false
	}
	return r.Seconds.P50, true
}

func resident(r *results.Record) (float64, bool) {
	if r.Memory == nil {
		return 0, false
	}
	return float64(r.Memory.Resident), true
}

// curves returns how a value of an operation grows with the number of Services,
// for every subject with results.
func curves(files []*results.File, op results.Operation, value func(*results.Record) (float64, bool)) map[subject][]plot.Point {
	values := make(map[subject]map[int]float64)
	for r := range records(files) {
		v, ok := value(r)
		if !ok || r.Place != "" || r.Operation != op || r.Endpoints != curveEndpoints || r.Scenario == exposed || r.Scenario == results.Unobserved {
			continue
		}
		who := subject{r.Program, r.From}
		if values[who] == nil {
			values[who] = make(map[int]float64)
		}
		values[who][r.Services] = v
	}
	out := make(map[subject][]plot.Point)
	for who, points := range values {
		for _, n := range slices.Sorted(maps.Keys(points)) {
			out[who] = append(out[who], plot.Point{X: float64(n), Y: points[n]})
		}
	}
	return out
}

// exposed is the scenario with Services that are not plain ClusterIPs.
const exposed = "AM"
