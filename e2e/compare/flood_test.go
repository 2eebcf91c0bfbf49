package compare

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// flood is the result of continuous changes.
type flood struct {
	took           time.Duration
	written        map[string]time.Time // when, by the new address
	kernel, behind []time.Duration
	commits        int
	cpu            time.Duration
}

// sustain replaces an endpoint of one service after the other, so many in a
// second and so long, each by an address that was never there.
func (c *comparison) sustain(rate int, length time.Duration) *flood {
	t := c.C.T
	t.Helper()
	c.kernel.Pending(t)
	drain(c.events.slices)
	used, begin := c.proxy.CPU(t), time.Now()
	f := &flood{written: c.write(rate, length)}
	f.took = time.Since(begin)
	told := map[string]time.Time{}
	for len(told) < len(f.written) {
		e := nextEvent(t, c.events.slices)
		told[e.first] = e.seen
	}
	for _, k := range c.settle() {
		f.commits++
		for a := range k.Added {
			if at, ok := f.written[a.String()]; ok {
				f.kernel = append(f.kernel, k.Seen.Sub(at))
				f.behind = append(f.behind, k.Seen.Sub(told[a.String()]))
			}
		}
	}
	if n := len(f.kernel); n < len(f.written)/2 || n == 0 {
		t.Fatalf("%s: of %d changes, %d came to the kernel: use more services, so that fewer overwrite each other", c.name, len(f.written), n)
	}
	f.cpu = c.proxy.CPU(t) - used
	return f
}

// write makes the changes, and returns when each began.
func (c *comparison) write(rate int, length time.Duration) map[string]time.Time {
	t := c.C.T
	t.Helper()
	var mu sync.Mutex
	written, failed := map[string]time.Time{}, error(nil)
	numbers := make(chan int)
	var running sync.WaitGroup
	for range testbed.Writers {
		running.Go(func() {
			for n := range numbers {
				i, fresh := n%c.Services, testbed.Address(10, 64, n)
				at := time.Now()
				err := c.UpdateSlice(i, append([]netip.Addr{fresh}, c.Endpoints(i)[1:]...)...)
				mu.Lock()
				if written[fresh.String()] = at; err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	for range await.Ticks(nil, time.Second/time.Duration(rate)) {
		if time.Since(begin) >= length {
			break
		}
		numbers <- c.writes
		c.writes++
	}
	close(numbers)
	running.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	return written
}

func drain(events <-chan apiEvent) {
	for len(events) > 0 {
		<-events
	}
}

// recordFloods records runs at one rate: all delays count alike.
func (c *comparison) recordFloods(rate int, all []*flood) {
	var behind []time.Duration
	var used, commits []float64
	asked, came := 0, 0
	for _, f := range all {
		behind = append(behind, f.behind...)
		used = append(used, f.cpu.Seconds()/f.took.Seconds())
		commits = append(commits, float64(f.commits)/f.took.Seconds())
		asked, came = asked+len(f.written), came+len(f.behind)
	}
	r := results.Record{From: results.FromEvent, Rate: float64(rate), Period: c.period.Seconds(),
		Seconds: results.Durations(behind), Processor: results.Values(used), PerSecond: results.Values(commits)}
	c.record(results.Churn, r)
	fmt.Printf("%s, period %v, %d changes/s (%.0f/s made, %d of %d overwritten): %s and at most %s behind the API event, %.1f %% of a core, %.1f transactions/s\n",
		c.name, c.period, rate, float64(asked)/total(all).Seconds(), asked-came, asked, report.Seconds(r.Seconds.P50), report.Seconds(r.Seconds.Max),
		100*r.Processor.P50, r.PerSecond.P50)
}

func total(all []*flood) (took time.Duration) {
	for _, f := range all {
		took += f.took
	}
	return took
}
