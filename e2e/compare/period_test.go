package compare

import (
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// BenchmarkSyncPeriod shows what the minimum time between two syncs does to
// continuous changes: how late they are, and what they cost. Its variables are those
// of BenchmarkChurn.
func BenchmarkSyncPeriod(b *testing.B) {
	r, length := testbed.NewReport(b), timeFrom(b, "COMPARE_TIME", 15*time.Second)
	for _, services := range loadSizes(b, 3_000) {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			c := newComparison(b, r, services)
			rates := []int{20, 100, 500}
			for _, x := range periods() {
				c.contender = x
				all := map[int][]*flood{}
				for range churnRuns(b) {
					c.startAndSync()
					for _, rate := range rates {
						all[rate] = append(all[rate], c.sustain(rate, length))
					}
					c.stop()
					c.flush()
				}
				for _, rate := range rates {
					c.recordFloods(rate, all[rate])
				}
			}
		})
	}
	r.Write(b)
}

// periods returns the proxies with the least times between two syncs. In a
// configuration file 0 is the default, so the shortest other time stands for it.
func periods() []contender {
	all := []contender{
		{name: results.KubeProxy, program: testbed.KubeProxy, period: time.Second},
		{name: results.KubeProxy, program: testbed.KubeProxy, period: time.Millisecond},
	}
	for _, p := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		all = append(all, contender{name: results.Nftproxy, program: testbed.NFTProxy, period: p})
	}
	return all
}
