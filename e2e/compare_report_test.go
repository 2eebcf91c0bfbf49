package e2e

import (
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

func (c *comparison) record(operation results.Operation, r results.Record) {
	r.Program, r.Services, r.Endpoints, r.Operation = c.name, c.Services, loadEndpoints, operation
	c.report.File.Records = append(c.report.File.Records, r)
}

// recordTimes records changes of a kind.
func (c *comparison) recordTimes(operation results.Operation, all []times) {
	var kernel, watch, behind []time.Duration
	var transactions int
	for _, x := range all {
		kernel, watch, behind = append(kernel, x.kernel), append(watch, x.watch), append(behind, x.kernel-x.watch)
		transactions += x.transactions
	}
	work := &results.Work{Transactions: float64(transactions) / float64(len(all))}
	c.record(operation, results.Record{From: results.FromWrite, Seconds: results.Durations(kernel), Work: work})
	c.record(watchAlone+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(watch)})
	c.record(lag+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(behind)})
}

// recordPeak records the most memory that was used, over all processes of a
// proxy.
func (c *comparison) recordPeak(peak uint64) {
	if old := c.report.Find(c.name, c.Services, peakMemory); old != nil {
		old.Memory.Peak = max(old.Memory.Peak, peak)
		return
	}
	c.record(peakMemory, results.Record{Memory: &results.Memory{Peak: peak}})
}
