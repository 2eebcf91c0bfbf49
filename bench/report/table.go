package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// builders make the tables, by name.
var builders = map[string]func([]*results.File) *grid{
	machines:  func(files []*results.File) *grid { return machineTable(about(files, false)) },
	"times":   timesTable,
	"start":   startTable,
	"change":  changeTable,
	"memory":  memoryTable,
	"details": detailsTable,
	"growth":  growthTable,
	"kernels": kernelsTable,
	"compare": compareTable,
	"rates":   ratesTable,
	"flows":   flowsTable,
	"rest":    restTable,
	"churn":   churnTable,
	"period":  periodTable,
	"soak":    soakTable,
	"process": processTable,

	"program":  programTable,
	"init":     initTable,
	"features": featuresTable,
	"checks":   checksTable,
	"files":    filesTable,

	"balancers-cost":   in("", balancedCostTable),
	"balancers-rates":  besideOthers(in(VirtualMachine, balancedTrafficTable)),
	"fast-path":        fastPathTable,
	"services":         in("", balancedServicesTable),
	"services-virtual": in(VirtualMachine, balancedServicesTable),
	"failover":         in("", failoverTable),
	"failover-virtual": in(VirtualMachine, failoverTable),

	watchedMachines:     func(files []*results.File) *grid { return machineTable(about(files, true)) },
	"watchers":          watchersTable,
	"watchers-compared": watchersComparedTable,
	"watchers-memory":   watchersMemoryTable,
}

// Tables that name machines and versions.
const (
	machines        = "machine"
	watchedMachines = "watchers-machine"
)

// in returns a table of what was measured in one place.
func in(place string, build func([]*results.File, string) *grid) func([]*results.File) *grid {
	return func(files []*results.File) *grid { return build(files, place) }
}

// Tables returns all tables as Markdown, by name. One for which there are no
// results is empty.
func Tables(files []*results.File) map[string]string {
	out := make(map[string]string)
	for name, build := range builders {
		out[name] = ""
		if g := build(files); len(g.rows) > 0 {
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
	results.ColdStart, results.Restart, results.Resume, results.ReplaceEndpoint, results.ScaleUp, results.ScaleDown,
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

// startTable compares starts with what the kernel itself needs for one, and with
// each other. Ratios are medians of those of each run.
func startTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"services × endpoints", "kernel alone", "cold start", "/ kernel alone", "peak memory", "restart", "/ cold start", "with a record", "/ cold start"}}
	for _, s := range all {
		alone, cold, restart := last[place{s, results.KernelAlone}], last[place{s, results.ColdStart}], last[place{s, results.Restart}]
		if alone == nil || cold == nil || restart == nil || cold.Memory == nil {
			continue
		}
		ofKernel, ofCold := cold.Ratios[results.KernelAlone], restart.Ratios[results.ColdStart]
		if ofKernel == nil || ofCold == nil {
			continue
		}
		row := []string{s.String(), Seconds(alone.Seconds.P50), Seconds(cold.Seconds.P50), fmt.Sprintf("%.2f", ofKernel.P50),
			Bytes(float64(cold.Memory.Peak)), Seconds(restart.Seconds.P50), fmt.Sprintf("%.2f", ofCold.P50), "", ""}
		if resume := last[place{s, results.Resume}]; resume != nil && resume.Ratios[results.ColdStart] != nil {
			row[7], row[8] = Seconds(resume.Seconds.P50), fmt.Sprintf("%.2f", resume.Ratios[results.ColdStart].P50)
		}
		g.add(row...)
	}
	return g
}

// changeTable compares a changed endpoint with what the kernel itself needs for it.
func changeTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"services × endpoints", "kernel alone", "replace an endpoint", "/ kernel alone", "allocations"}}
	for _, s := range all {
		alone, whole := last[place{s, results.KernelAloneReplace}], last[place{s, results.ReplaceEndpoint}]
		if alone == nil || whole == nil || whole.Ratios[results.KernelAloneReplace] == nil || whole.Work == nil {
			continue
		}
		g.add(s.String(), Seconds(alone.Seconds.P50), Seconds(whole.Seconds.P50),
			fmt.Sprintf("%.1f", whole.Ratios[results.KernelAloneReplace].P50), Count(whole.Work.Allocations))
	}
	return g
}

func memoryTable(files []*results.File) *grid {
	all, last := scenes(files)
	g := &grid{head: []string{"services × endpoints", "after the start", "at the end", "peak", "heap in use", "live", "live for each Service"}}
	for _, s := range all {
		if r := last[place{s, results.MemoryUse}]; r != nil && r.Memory != nil {
			m := r.Memory
			live := ""
			if m.Live > 0 {
				live = Bytes(float64(m.Live) / float64(r.Services))
			}
			g.add(s.String(), known(m.Started), known(m.Resident), known(m.Peak), known(m.HeapInUse), known(m.Live), live)
		}
	}
	return g
}

// known returns a number of bytes, empty if it is zero.
func known(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return Bytes(float64(bytes))
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
