package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/bench/plot"
	"github.com/nftproxy/nftproxy/bench/results"
)

// VirtualMachine is the place of results that compare only with each other: time is
// counted in instructions there.
const VirtualMachine = "virtual machine"

// balancing is what a record about a load balancer is for.
type balancing struct {
	program   results.Program
	operation results.Operation
	services  int
	scenario  string
}

// balancers returns the records about load balancers in a place, and the programs in
// their order.
func balancers(files []*results.File, place string, operations ...results.Operation) ([]results.Program, map[balancing]*results.Record) {
	order, last := latest(files, func(r *results.Record) (balancing, bool) {
		return balancing{r.Program, r.Operation, r.Services, r.Scenario}, r.Place == place && slices.Contains(operations, r.Operation)
	})
	var programs []results.Program
	for _, k := range order {
		if !slices.Contains(programs, k.program) {
			programs = append(programs, k.program)
		}
	}
	return programs, last
}

// noBalancer is the program of records in which clients dial the servers.
const noBalancer results.Program = "none"

var balancedKinds = []results.Operation{results.BalancedConnection, results.BalancedRequest, results.BalancedGigabit}

// balancedTrafficTable has what balancers carry.
func balancedTrafficTable(files []*results.File, place string) *grid {
	g := &grid{head: []string{"balancer", "connections/s", "of none", "requests/s", "of none", "p50", "p99", "Gbit/s", "of none"}}
	balancedRows(files, place, g, func(kind results.Operation, r, none *results.Record) []string {
		rate := Count(r.PerSecond.P50)
		if kind == results.BalancedGigabit {
			rate = significant(r.PerSecond.P50)
		}
		row := []string{rate, percent(r.PerSecond.P50 / none.PerSecond.P50)}
		if kind == results.BalancedRequest {
			row = append(row, Seconds(r.Seconds.P50), Seconds(r.Tail.P50))
		}
		return row
	})
	return g
}

// Programs of the comparison of the fast path.
var fastPath = []results.Program{noBalancer, results.Nftproxy, withFastPath}

const withFastPath results.Program = "nftproxy with its fast path"

// fastPathTable compares nftproxy with and without its fast path, in the last run that measured both:
// figures of a virtual machine are comparable within one run only.
func fastPathTable(files []*results.File) *grid {
	for _, f := range slices.Backward(files) {
		if !slices.ContainsFunc(f.Records, func(r results.Record) bool { return r.Program == withFastPath }) {
			continue
		}
		_, last := balancers([]*results.File{f}, VirtualMachine, balancedKinds...)
		return fastPathRows(last)
	}
	return &grid{}
}

// fastPathRows compares kept connections with a router without rules. New ones are compared with
// those of nftproxy without the fast path: it does not concern them.
func fastPathRows(last map[balancing]*results.Record) *grid {
	of := func(p results.Program, kind results.Operation) *results.Record {
		return last[balancing{p, kind, 1, ""}]
	}
	g := &grid{head: []string{"", "requests/s", "of none", "p50", "p99", "Gbit/s", "of none", "connections/s", "of nftproxy"}}
	for _, p := range fastPath {
		request, bulk, connection := of(p, results.BalancedRequest), of(p, results.BalancedGigabit), of(p, results.BalancedConnection)
		noRequest, noBulk, usual := of(noBalancer, results.BalancedRequest), of(noBalancer, results.BalancedGigabit), of(results.Nftproxy, results.BalancedConnection)
		if slices.Contains([]*results.Record{request, bulk, connection, noRequest, noBulk, usual}, nil) {
			continue
		}
		row := []string{string(p), Count(request.PerSecond.P50), percent(request.PerSecond.P50 / noRequest.PerSecond.P50), Seconds(request.Seconds.P50),
			Seconds(request.Tail.P50), significant(bulk.PerSecond.P50), percent(bulk.PerSecond.P50 / noBulk.PerSecond.P50), "", ""}
		if p != noBalancer {
			row[7], row[8] = Count(connection.PerSecond.P50), percent(connection.PerSecond.P50/usual.PerSecond.P50)
		}
		g.add(row...)
	}
	return g
}

// besideOthers leaves out files that compare nftproxy only with itself.
func besideOthers(build func([]*results.File) *grid) func([]*results.File) *grid {
	return func(files []*results.File) *grid {
		return build(slices.DeleteFunc(slices.Clone(files), func(f *results.File) bool {
			return !slices.ContainsFunc(f.Records, func(r results.Record) bool { return !slices.Contains(fastPath, r.Program) })
		}))
	}
}

// balancedCostTable has the processor time of all that takes part.
func balancedCostTable(files []*results.File, place string) *grid {
	g := &grid{head: []string{"processor time, clients and servers included", "connection", "/ none", "request", "/ none", "Gbit", "/ none"}}
	balancedRows(files, place, g, func(_ results.Operation, r, none *results.Record) []string {
		return []string{Seconds(r.Cost.P50), fmt.Sprintf("%.2f", r.Cost.P50/none.Cost.P50)}
	})
	return g
}

// balancedRows adds a row for each balancer, with the cells of each kind of traffic.
func balancedRows(files []*results.File, place string, g *grid, cells func(kind results.Operation, r, none *results.Record) []string) {
	programs, last := balancers(files, place, balancedKinds...)
	for _, p := range programs {
		row := []string{string(p)}
		for _, kind := range balancedKinds {
			if r, none := last[balancing{p, kind, 1, ""}], last[balancing{noBalancer, kind, 1, ""}]; r != nil && none != nil {
				row = append(row, cells(kind, r, none)...)
			}
		}
		if len(row) == len(g.head) {
			g.add(row...)
		}
	}
}

// balancedServicesTable has starts, memory and changes with one service and with many.
func balancedServicesTable(files []*results.File, place string) *grid {
	programs, last := balancers(files, place, results.BalancerStart, results.BalancerChange)
	many := 1
	var changes []balancing
	for k := range last {
		many = max(many, k.services)
		if k.operation == results.BalancerChange && k.services == 1 {
			changes = append(changes, k)
		}
	}
	slices.SortFunc(changes, func(a, b balancing) int {
		return cmp.Or(cmp.Compare(slices.Index(programs, a.program), slices.Index(programs, b.program)), cmp.Compare(a.scenario, b.scenario))
	})
	g := &grid{head: []string{"balancer", "start, 1 service", Count(float64(many)) + " services", "processes, 1 service",
		Count(float64(many)) + " services", "kernel, " + Count(float64(many)) + " services", "changed by", "change, 1 service", Count(float64(many)) + " services"}}
	for _, c := range changes {
		one, all := last[balancing{c.program, results.BalancerStart, 1, ""}], last[balancing{c.program, results.BalancerStart, many, ""}]
		change := last[balancing{c.program, results.BalancerChange, many, c.scenario}]
		if one == nil || all == nil || change == nil {
			continue
		}
		inKernel := ""
		if place == VirtualMachine { // where nothing else allocates meanwhile
			inKernel = Bytes(float64(max(all.Memory.Kernel, 0)))
		}
		g.add(string(c.program), Seconds(one.Seconds.P50), Seconds(all.Seconds.P50), known(one.Memory.Resident), known(all.Memory.Resident),
			inKernel, c.scenario, Seconds(last[c].Seconds.P50), Seconds(change.Seconds.P50))
	}
	return g
}

// failoverTable has what the failure of one of three servers costs.
func failoverTable(files []*results.File, place string) *grid {
	programs, last := balancers(files, place, results.BalancerFailover)
	var failures []string
	for k := range last {
		if !slices.Contains(failures, k.scenario) {
			failures = append(failures, k.scenario)
		}
	}
	slices.Sort(failures)
	slices.Reverse(failures) // refused connections first
	g := &grid{head: []string{"balancer"}}
	for _, f := range failures {
		g.head = append(g.head, "server "+f+": failed", "last failure after", "slowest answer")
	}
	for _, p := range programs {
		row := []string{string(p)}
		for _, f := range failures {
			r := last[balancing{p, results.BalancerFailover, 1, f}]
			if r == nil {
				row = append(row, "", "", "")
				continue
			}
			until := Seconds(r.Seconds.P50)
			if r.Failover.Failed.P50 == 0 {
				until = ""
			}
			row = append(row, fmt.Sprintf("%s of %s", Count(r.Failover.Failed.P50), Count(r.Failover.Requests.P50)), until,
				Seconds(r.Failover.Slowest.P50))
		}
		g.add(row...)
	}
	return g
}

// silentFailure is the scenario of the plot.
const silentFailure = "is silent"

// failoverFigure is how failures add up after one of three servers fell silent.
func failoverFigure(files []*results.File) Figure {
	programs, last := balancers(files, VirtualMachine, results.BalancerFailover)
	p := &plot.Plot{Title: "One of three servers falls silent: requests that fail",
		X: plot.Axis{Label: "seconds since the failure", Format: Count}, Y: plot.Axis{Label: "failed requests, of 50 a second", Format: Count}}
	for i, program := range programs {
		r := last[balancing{program, results.BalancerFailover, 1, silentFailure}]
		if r == nil {
			continue
		}
		points := []plot.Point{{}}
		for step, failed := range r.Failover.Curve {
			points = append(points, plot.Point{X: float64(step+1) * results.CurveStep.Seconds(), Y: float64(failed)})
		}
		p.Lines = append(p.Lines, plot.Line{Name: string(program), Points: points, Colour: i})
	}
	return Figure{"failover", p}
}
