package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// Tables returns all tables as Markdown, by name. One for which there are no
// results is empty.
func Tables(files []*results.File) map[string]string {
	out := make(map[string]string)
	for name, g := range map[string]*grid{
		"machine": machineTable(files),
		"times":   timesTable(files),
		"memory":  memoryTable(files),
		"details": detailsTable(files),
		"growth":  growthTable(files),
		"compare": compareTable(files, func(int) bool { return true }),
		"summary": summaryTable(files),
		"rates":   ratesTable(files),
		"rest":    restTable(files),
		"churn":   churnTable(files),
		"period":  periodTable(files),
		"soak":    soakTable(files),
	} {
		out[name] = ""
		if len(g.rows) > 0 {
			out[name] = g.markdown()
		}
	}
	return out
}

// machineTable names the machine, the date and the versions of the results.
func machineTable(files []*results.File) *grid {
	type place struct {
		machine results.Machine
		date    string
	}
	var order []place
	versions := make(map[place][]string)
	for _, f := range files {
		p := place{f.Machine, f.Date.Format(time.DateOnly)}
		if versions[p] == nil {
			order = append(order, p)
		}
		for name, version := range f.Versions {
			versions[p] = append(versions[p], name+" "+version)
		}
	}
	g := &grid{head: []string{"date", "processor", "cores", "memory", "kernel", "versions"}}
	for _, p := range order {
		slices.Sort(versions[p])
		g.add(p.date, p.machine.CPU, fmt.Sprint(p.machine.Cores), Bytes(float64(p.machine.Memory)),
			p.machine.Kernel, strings.Join(slices.Compact(versions[p]), ", "))
	}
	return g
}

// operations are those of a proxy, in the order in which people read them.
var operations = []results.Operation{
	results.ColdStart, results.Restart, results.ReplaceEndpoint, results.ScaleUp, results.ScaleDown,
	results.AddService, results.DeleteService, results.RandomChange,
}

// scene is a named scenario with its size.
type scene struct {
	name                string
	services, endpoints int
}

func sceneOf(r *results.Record) scene { return scene{r.Scenario, r.Services, r.Endpoints} }

// String returns for example "A: 10,000 x 4".
func (s scene) String() string {
	size := fmt.Sprintf("%s × %d", Count(float64(s.services)), s.endpoints)
	if s.name == "" {
		return size
	}
	return s.name + ": " + size
}

// place is a cell of the tables about scenarios.
type place struct {
	scene
	operation results.Operation
}

// scenes returns the named scenarios of nftproxy from the snapshot, and the
// record of each operation.
func scenes(files []*results.File) ([]scene, map[place]*results.Record) {
	order, last := latest(files, func(r *results.Record) (place, bool) {
		ok := r.Program == results.Nftproxy && r.From == results.FromSnapshot && r.Scenario != ""
		return place{sceneOf(r), r.Operation}, ok
	})
	var all []scene
	for _, p := range order {
		if !slices.Contains(all, p.scene) {
			all = append(all, p.scene)
		}
	}
	return all, last
}

// timesTable has the medians of all operations in all scenarios.
func timesTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"from snapshot to kernel, median"}}
	for _, s := range all {
		g.head = append(g.head, s.String())
	}
	for _, op := range operations {
		row, found := []string{string(op)}, false
		for _, s := range all {
			cell := ""
			if r := last[place{s, op}]; r != nil && r.Seconds != nil {
				cell, found = Seconds(r.Seconds.P50), true
			}
			row = append(row, cell)
		}
		if found {
			g.add(row...)
		}
	}
	return g
}

func memoryTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"services × endpoints", "resident", "heap in use", "peak"}}
	for _, s := range all {
		if r := last[place{s, results.MemoryUse}]; r != nil && r.Memory != nil {
			m := r.Memory
			g.add(s.String(), Bytes(float64(m.Resident)), Bytes(float64(m.HeapInUse)), Bytes(float64(m.Peak)))
		}
	}
	return g
}

// detailsTable has all that was measured of nftproxy from the snapshot.
func detailsTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"", "n", "p50", "p95", "max", "allocations", "allocated", "changes", "transactions", "netlink"}}
	for _, s := range all {
		for _, op := range operations {
			r := last[place{s, op}]
			if r == nil || r.Seconds == nil || r.Work == nil {
				continue
			}
			g.add(s.String()+", "+string(op), Count(float64(r.Seconds.N)),
				Seconds(r.Seconds.P50), Seconds(r.Seconds.P95), Seconds(r.Seconds.Max),
				Count(r.Work.Allocations), Bytes(r.Work.AllocatedBytes),
				significant(r.Work.Changes), significant(r.Work.Transactions), Bytes(r.Work.NetlinkBytes))
		}
	}
	return g
}
