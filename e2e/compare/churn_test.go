package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// churnRate is how many changes a second a proxy gets.
const churnRate = 500

// BenchmarkChurn measures the proxies at rest and under continuous changes, one after
// the other in each run. COMPARE_RUNS is how many runs there are, REST_TIME how long
// nothing happens in each, before the measurement of rest and again during it, and
// COMPARE_TIME how long changes go on; the other variables are those of
// BenchmarkCompare.
func BenchmarkChurn(b *testing.B) {
	r := testbed.NewReport(b)
	// Two minutes have two bookmarks of each watch, and one garbage collection.
	nothing := timeFrom(b, "REST_TIME", 2*time.Minute)
	for _, services := range loadSizes(b, 3_000) {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			c := newComparison(b, r, services)
			proxies := []contender{{name: results.KubeProxy, program: testbed.KubeProxy}, {name: results.Nftproxy, program: testbed.NFTProxy}}
			rests, floods := map[results.Program][]rest{}, map[results.Program][]*flood{}
			for range churnRuns(b) {
				for _, c.contender = range proxies {
					c.startAndSync()
					rests[c.name] = append(rests[c.name], c.rest(nothing))
					floods[c.name] = append(floods[c.name], c.sustain(churnRate, changeTime(b)))
					c.stop()
					c.flush()
				}
			}
			for _, c.contender = range proxies {
				c.recordRests(results.Record{}, rests[c.name])
				c.recordFloods(churnRate, floods[c.name])
			}
			c.restOfFile(nothing, churnRuns(b))
		})
	}
	r.Write(b)
}

// rest is what a proxy does while nothing changes, in each second.
type rest struct{ wakeups, processor float64 }

// rest watches the proxy while nothing changes. In the same time before that, Go
// returns memory of the start to the system.
func (c *comparison) rest(length time.Duration) rest {
	t := c.C.T
	t.Helper()
	await.Span(length)
	wakeups, used := c.proxy.Wakeups(t), c.proxy.CPU(t)
	await.Span(length)
	r := rest{float64(c.proxy.Wakeups(t)-wakeups) / length.Seconds(), (c.proxy.CPU(t) - used).Seconds() / length.Seconds()}
	if n := c.kernel.Pending(t); n > 0 {
		t.Fatalf("%s: %d transactions while nothing changes", c.name, n)
	}
	return r
}

func (c *comparison) recordRests(r results.Record, all []rest) {
	var wakeups, used []float64
	for _, x := range all {
		wakeups, used = append(wakeups, x.wakeups), append(used, x.processor)
	}
	r.PerSecond, r.Processor = results.Values(wakeups), results.Values(used)
	c.record(results.Rest, r)
	fmt.Printf("%s %s at rest: %.2f wakeups a second, %.3f %% of a core\n", c.name, r.Scenario, r.PerSecond.P50, 100*r.Processor.P50)
}

// restOfFile watches nftproxy without an API server.
func (c *comparison) restOfFile(length time.Duration, runs int) {
	t := c.C.T
	t.Helper()
	c.proxy = testbed.Start(t, c.C.Node, testbed.NFTProxy, "run", "-f", filepath.Join("..", "..", "demo", "services.yaml"), "--hostname-override", testbed.NodeName)
	c.settle()
	var all []rest
	for range runs {
		all = append(all, c.rest(length))
	}
	c.recordRests(results.Record{Scenario: "from a file", Services: 1, Endpoints: 3}, all)
	c.stop()
	c.flush()
}

// churnRuns returns what COMPARE_RUNS says.
func churnRuns(b *testing.B) int {
	b.Helper()
	text := os.Getenv("COMPARE_RUNS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("COMPARE_RUNS is %q: use a number from 1 up", text)
	}
	return n
}
