package compare

import (
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func (c *comparison) record(operation results.Operation, r results.Record) {
	if r.Program, r.Operation = c.name, operation; r.Services == 0 {
		r.Services, r.Endpoints = c.Services, testbed.LoadEndpoints
	}
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
	c.record(testbed.WatchAlone+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(watch)})
	c.record(testbed.Lag+operation, results.Record{From: results.FromWrite, Seconds: results.Durations(behind)})
}

// recordPeak records the most memory that was used, over all processes of a
// proxy.
func (c *comparison) recordPeak(peak uint64) {
	if old := c.report.Find(c.name, c.Services, testbed.PeakMemory); old != nil {
		old.Memory.Peak = max(old.Memory.Peak, peak)
		return
	}
	c.record(testbed.PeakMemory, results.Record{Memory: &results.Memory{Peak: peak}})
}
