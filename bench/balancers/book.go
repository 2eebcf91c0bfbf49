package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/bench/command"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// book collects what is measured.
type book struct {
	plan   *plan
	order  []page
	values map[page]map[string][]float64
	curves map[page][]int // of the last failover
}

// page is what a record is about.
type page struct {
	balancer  string
	services  int
	operation results.Operation
	scenario  string
}

func newBook(p *plan) *book {
	return &book{plan: p, values: map[page]map[string][]float64{}, curves: map[page][]int{}}
}

// Names of values.
const (
	perSecond = "per second"
	cost      = "processor seconds for one"
	seconds   = "seconds"
	tail      = "p99 seconds"
	processes = "bytes of processes"
	kernel    = "bytes of the kernel"
	failed    = "failed"
	requests  = "requests"
	slowest   = "slowest answer"
)

func (k *book) add(p page, values map[string]float64) {
	if k.values[p] == nil {
		k.order = append(k.order, p)
		k.values[p] = map[string][]float64{}
	}
	for name, v := range values {
		k.values[p][name] = append(k.values[p][name], v)
	}
}

func (k *book) traffic(b balancer, kind string, o *outcome, used time.Duration) {
	n := float64(o.Requests)
	op := map[string]results.Operation{connectLoad: results.BalancedConnection, requestLoad: results.BalancedRequest, bulkLoad: results.BalancedGigabit}[kind]
	v := map[string]float64{}
	if kind == bulkLoad {
		n = float64(o.Bytes) * 8 / 1e9
	} else {
		v[seconds], v[tail] = o.P50, o.P99
	}
	v[perSecond], v[cost] = n/o.Seconds, used.Seconds()/n
	k.add(page{b.name(), 1, op, ""}, v)
}

func (k *book) start(b balancer, services int, took time.Duration, ofProcesses uint64, ofKernel int64) {
	k.add(page{b.name(), services, results.BalancerStart, ""}, map[string]float64{
		seconds: took.Seconds(), processes: float64(ofProcesses), kernel: float64(ofKernel)})
}

func (k *book) change(b balancer, services int, way string, took time.Duration) {
	k.add(page{b.name(), services, results.BalancerChange, way}, map[string]float64{seconds: took.Seconds()})
}

func (k *book) failover(b balancer, failure string, o *losses) {
	p := page{b.name(), 1, results.BalancerFailover, failure}
	k.curves[p] = o.curve
	k.add(p, map[string]float64{
		requests: float64(o.requests), failed: float64(o.failed), seconds: o.last.Seconds(), slowest: o.slowest.Seconds()})
}

// table prints medians and ranges.
func (k *book) table() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	pages := slices.Clone(k.order)
	slices.SortStableFunc(pages, func(a, b page) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.services, b.services), cmp.Compare(a.scenario, b.scenario))
	})
	for _, p := range pages {
		for _, name := range slices.Sorted(maps.Keys(k.values[p])) {
			v := k.values[p][name]
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t(%s to %s)\n", p.operation, p.services, p.balancer, p.scenario, name,
				format(results.Median(v...)), format(slices.Min(v)), format(slices.Max(v)))
		}
	}
	_ = w.Flush() // to memory
	return text.String()
}

func format(v float64) string {
	if v >= 1000 || v <= -1000 {
		return report.Count(v)
	}
	return fmt.Sprintf("%.4g", v)
}

// write writes a file of results.
func (k *book) write(path string) error {
	f, err := command.Results(nftproxyPath, nil)
	if err != nil {
		return err
	}
	for _, b := range k.plan.balancers {
		if v := b.version(); v != "" {
			f.Versions[nameOfProgram(b)] = v
		}
	}
	for _, p := range k.order {
		f.Records = append(f.Records, k.record(p))
	}
	return f.Write(path)
}

func nameOfProgram(b balancer) string {
	name, _, _ := strings.Cut(b.name(), " with")
	if b.program() == "keepalived" {
		return "keepalived"
	}
	return strings.TrimSuffix(name, " by hand")
}

func (k *book) record(p page) results.Record {
	v := k.values[p]
	r := results.Record{Program: results.Program(p.balancer), Scenario: p.scenario, Services: p.services, Operation: p.operation,
		Place: k.plan.place, Seconds: results.Values(v[seconds]), PerSecond: results.Values(v[perSecond]), Cost: results.Values(v[cost]),
		Tail: results.Values(v[tail])}
	if v[processes] != nil {
		r.Memory = &results.Memory{Resident: uint64(results.Median(v[processes]...)), Kernel: int64(results.Median(v[kernel]...))}
	}
	if v[failed] != nil {
		r.Failover = &results.Failover{Requests: results.Values(v[requests]), Failed: results.Values(v[failed]), Slowest: results.Values(v[slowest]), Curve: k.curves[p]}
	}
	return r
}
