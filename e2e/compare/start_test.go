package compare

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// coldStart starts the proxy where there are no rules.
func (c *comparison) coldStart() {
	var took, used []time.Duration
	c.starts.repeat(func(i int) {
		if i > 0 {
			c.stop()
			c.flush()
		}
		begin := c.start()
		last, cpu := c.complete()
		took, used = append(took, last.Seen.Sub(begin)), append(used, cpu)
		c.verify()
	})
	c.record(results.ColdStart, results.Record{From: results.FromProcess, Seconds: results.Durations(took)})
	c.record(testbed.ColdStartCPU, results.Record{From: results.FromProcess, Seconds: results.Durations(used)})
}

// complete waits for the last transaction that adds a part of the complete
// rules. It returns that transaction, and the processor time that the proxy had
// used when it was idle. The time of a child process counts once that has
// ended.
func (c *comparison) complete() (last testbed.Commit, used time.Duration) {
	t := c.C.T
	t.Helper()
	wanted := c.Addresses()
	missing := maps.Clone(wanted)
	for len(missing) > 0 {
		last, _ = c.await("all services and endpoints", func(k testbed.Commit) bool { return overlap(k.Added, wanted) })
		for a := range last.Added {
			delete(missing, a)
		}
	}
	for _, k := range c.settle() {
		if overlap(k.Added, wanted) {
			last = k
		}
	}
	return last, c.proxy.CPU(t)
}

func overlap(a, b map[netip.Addr]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// startAndSync starts the proxy and waits until it has nothing to do.
func (c *comparison) startAndSync() {
	c.C.T.Helper()
	c.start()
	testbed.Eventually(c.C.T, c.synced)
	c.settle()
}

// restart stops the proxy and starts it again with all rules in place.
func (c *comparison) restart() {
	t := c.C.T
	t.Helper()
	var took []time.Duration
	var transactions int
	c.starts.repeat(func(int) {
		c.stop()
		begin := c.start()
		testbed.Eventually(t, c.synced)
		took = append(took, time.Since(begin))
		transactions += len(c.settle())
		c.verify()
	})
	c.record(results.Restart, results.Record{From: results.FromProcess, Seconds: results.Durations(took),
		Work: &results.Work{Transactions: float64(transactions) / float64(len(took))}})
}

// synced asks the metrics server whether there was a sync. All runs on one
// thread in the namespace: entering it for each question would take longer than
// the answer.
func (c *comparison) synced() error {
	const metric = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `
	return c.C.Node.Do(func() error {
		return await.Poll(testbed.Patience, 10*time.Millisecond, func() error {
			if v, err := testbed.ReadMetric("127.0.0.1:10249", metric); err != nil || v == 0 {
				return fmt.Errorf("%s has not synced: %w", c.name, err)
			}
			return nil
		})
	})
}
