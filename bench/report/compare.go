package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/bench/results"
)

// contest is a measurement of several programs.
type contest struct {
	services, endpoints int
	operation           results.Operation
	from                results.From
}

// compared reports whether an operation belongs into comparison tables. Result
// files also hold the parts of a measurement.
func compared(o results.Operation) bool {
	return o == results.MemoryUse || slices.Contains(operations, o)
}

// compareTable puts nftproxy beside kube-proxy wherever both were measured in
// the same way.
func compareTable(files []*results.File) *grid {
	of := func(p results.Program) ([]contest, map[contest]*results.Record) {
		return latest(files, func(r *results.Record) (contest, bool) {
			return contest{r.Services, r.Endpoints, r.Operation, r.From},
				r.Program == p && r.Scenario != exposed && r.Scenario != results.Unobserved && compared(r.Operation)
		})
	}
	order, theirs := of(results.KubeProxy)
	_, ours := of(results.Nftproxy)
	slices.SortStableFunc(order, func(a, b contest) int {
		return cmp.Or(cmp.Compare(a.services, b.services), cmp.Compare(a.endpoints, b.endpoints))
	})
	g := &grid{head: []string{"services × endpoints, operation", "kube-proxy", "nftproxy", "kube-proxy / nftproxy"}}
	for _, c := range order {
		name := scene{services: c.services, endpoints: c.endpoints}.String() + ", " + string(c.operation)
		if c.from != "" {
			name += ", from " + string(c.from)
		}
		for _, v := range []struct {
			value  func(*results.Record) (float64, bool)
			format func(float64) string
		}{{seconds, Seconds}, {resident, Bytes}} {
			if ours[c] == nil {
				continue
			}
			their, ok := v.value(theirs[c])
			our, both := v.value(ours[c])
			if ok && both {
				g.add(name, v.format(their), v.format(our), ratio(their, our))
			}
		}
	}
	return g
}

// processTable compares starts of the process with the least that they consist of:
// the list of the objects and the load of the rules. Ratios are medians of those of
// single runs.
func processTable(files []*results.File) *grid {
	order, last := latest(files, func(r *results.Record) (contest, bool) {
		return contest{r.Services, r.Endpoints, r.Operation, r.From}, r.Scenario == results.Unobserved && r.Seconds != nil
	})
	g := &grid{head: []string{"services × endpoints", "list by client-go", "load", "cold start", "/ list and load", "restart", "/ list and load"}}
	for _, c := range order {
		if c.operation != results.ColdStart {
			continue
		}
		of := func(o results.Operation) *results.Record { return last[contest{c.services, c.endpoints, o, c.from}] }
		list, load, cold, restart := of(results.ListObjects), of(results.LoadRules), of(results.ColdStart), of(results.Restart)
		if list == nil || load == nil || restart == nil || cold.Ratios[results.ListAndLoad] == nil || restart.Ratios[results.ListAndLoad] == nil {
			continue
		}
		g.add(scene{services: c.services, endpoints: c.endpoints}.String(), Seconds(list.Seconds.P50), Seconds(load.Seconds.P50),
			Seconds(cold.Seconds.P50), fmt.Sprintf("%.2f", cold.Ratios[results.ListAndLoad].P50),
			Seconds(restart.Seconds.P50), fmt.Sprintf("%.2f", restart.Ratios[results.ListAndLoad].P50))
	}
	return g
}

// ratio returns how many times larger a is than b, or nothing if that is
// meaningless.
func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return significant(a / b)
}

// way is a data path.
type way struct {
	program  results.Program
	services int
}

// ratesTable has how often the data path does something in a second.
func ratesTable(files []*results.File) *grid {
	of := func(op results.Operation) ([]way, map[way]*results.Record) {
		return latest(files, func(r *results.Record) (way, bool) {
			return way{r.Program, r.Services}, r.Operation == op && r.PerSecond != nil
		})
	}
	order, connect := of(results.Connect)
	_, trips := of(results.RoundTrip)
	g := &grid{head: []string{"rules", "services", "connections/s", "of no rules", "round trips/s", "of no rules"}}
	for _, w := range order {
		row := []string{string(w.program), Count(float64(w.services))}
		for _, all := range []map[way]*results.Record{connect, trips} {
			r, base := all[w], all[way{program: results.NoRules}]
			if r == nil || base == nil {
				row = append(row, "", "")
				continue
			}
			row = append(row, Count(r.PerSecond.P50), fmt.Sprintf("%.0f %%", 100*r.PerSecond.P50/base.PerSecond.P50))
		}
		g.add(row...)
	}
	return g
}
