package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// load is what a process is under: a number of Services, and changes of them.
type load struct {
	scene
	rate, period float64
}

func loads(files []*results.File, p results.Program, op results.Operation) ([]load, map[load]*results.Record) {
	return latest(files, func(r *results.Record) (load, bool) {
		return load{sceneOf(r), r.Rate, r.Period}, r.Program == p && r.Operation == op
	})
}

// aspect is one of the values of a record.
type aspect struct {
	name   string
	of     func(*results.Record) *results.Distribution
	format func(float64) string
}

var processor = aspect{"processor", func(r *results.Record) *results.Distribution { return r.Processor }, percent}

func perSecond(r *results.Record) *results.Distribution { return r.PerSecond }

// restTable has what the programs do while nothing changes.
func restTable(files []*results.File) *grid {
	return besideTable(files, results.Rest, []aspect{
		{"wakeups a second", perSecond, func(v float64) string { return fmt.Sprintf("%.2f", v) }},
		processor,
	})
}

// churnTable has the programs under continuous changes.
func churnTable(files []*results.File) *grid {
	return besideTable(files, results.Churn, []aspect{
		processor,
		{"delay behind the API event", func(r *results.Record) *results.Distribution { return r.Seconds }, Seconds},
		{"transactions a second", perSecond, significant},
	})
}

// besideTable puts nftproxy beside kube-proxy with the default time between syncs.
func besideTable(files []*results.File, op results.Operation, aspects []aspect) *grid {
	order, ours := loads(files, results.Nftproxy, op)
	_, theirs := loads(files, results.KubeProxy, op)
	g := &grid{head: []string{"services × endpoints", "kube-proxy", "nftproxy", "kube-proxy / nftproxy"}}
	for _, l := range order {
		if l.period != 0 {
			continue
		}
		for _, f := range aspects {
			our := f.of(ours[l])
			row := []string{l.String() + ", " + f.name, "", f.format(our.P50), ""}
			if r := theirs[l]; r != nil {
				their := f.of(r)
				row[1], row[3] = f.format(their.P50), ratio(their.P50, our.P50)
			}
			g.add(row...)
		}
	}
	return g
}

// String returns for example "1,000 × 4, 500 changes/s".
func (l load) String() string {
	if l.rate == 0 {
		return l.scene.String()
	}
	return fmt.Sprintf("%s, %s changes/s", l.scene, Count(l.rate))
}

// periodTable has what the minimum time between two syncs does under continuous
// changes.
func periodTable(files []*results.File) *grid {
	type contender struct {
		program results.Program
		period  float64
	}
	var order []contender
	var rates []float64
	all := make(map[contender]map[float64]*results.Record)
	for _, p := range []results.Program{results.KubeProxy, results.Nftproxy} {
		keys, last := loads(files, p, results.Churn)
		for _, l := range keys {
			if l.period == 0 {
				continue
			}
			c := contender{p, l.period}
			if all[c] == nil {
				order, all[c] = append(order, c), make(map[float64]*results.Record)
			}
			if all[c][l.rate] = last[l]; !slices.Contains(rates, l.rate) {
				rates = append(rates, l.rate)
			}
		}
	}
	g := &grid{head: []string{"minimum time between syncs"}}
	for _, rate := range rates {
		g.head = append(g.head, Count(rate)+" changes/s: delay", "processor")
	}
	for _, c := range order {
		row := []string{fmt.Sprintf("%s, %v", c.program, time.Duration(c.period*float64(time.Second)))}
		for _, rate := range rates {
			if r := all[c][rate]; r != nil {
				row = append(row, Seconds(r.Seconds.P50), percent(r.Processor.P50))
			} else {
				row = append(row, "", "")
			}
		}
		g.add(row...)
	}
	return g
}
