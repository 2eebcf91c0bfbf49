package compare

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// sustained is how long changes go on without pause.
const sustained = 15 * time.Second

// BenchmarkSyncPeriod shows what the least time between two syncs does to
// changes that do not stop: how late they are, and what they cost. Its variables
// are those of BenchmarkCompare.
func BenchmarkSyncPeriod(b *testing.B) {
	r := testbed.NewReport(b)
	for _, services := range loadSizes(b, 1_000) {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			c := newComparison(b, r, services)
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "\nproxy\tleast period\tasked/s\tdone/s\twrite to kernel p50\tp95\tmax\tbehind watch p50\tp95\toverwritten\ttransactions/s\tprocessor\tper change\t")
			for _, x := range periods() {
				c.contender = x
				c.start()
				c.settle()
				for _, rate := range []int{20, 100, 500} {
					c.sustain(rate).print(w, c.contender, rate)
				}
				c.stop()
				c.flush()
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// periods returns the proxies with the least times between two syncs. In a
// configuration file 0 is the default, so the shortest other time stands for it.
func periods() []contender {
	all := []contender{
		{name: results.KubeProxy, program: testbed.KubeProxy, period: time.Second},
		{name: results.KubeProxy, program: testbed.KubeProxy, period: time.Millisecond},
	}
	for _, p := range []time.Duration{1, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		all = append(all, contender{name: results.Nftproxy, program: testbed.NFTProxy, period: p})
	}
	return all
}

// flood is the result of continuous changes.
type flood struct {
	took           time.Duration
	written        map[string]time.Time // when, by the new address
	kernel, behind []time.Duration
	commits        int
	cpu            time.Duration
}

// sustain replaces an endpoint of one service after the other, so many in a
// second, each by an address that was never there.
func (c *comparison) sustain(rate int) *flood {
	t := c.C.T
	t.Helper()
	c.kernel.pending(t)
	drain(c.events.slices)
	used, begin := c.proxy.CPU(t), time.Now()
	f := &flood{written: c.write(rate)}
	f.took = time.Since(begin)
	told := map[string]time.Time{}
	for len(told) < len(f.written) {
		e := nextEvent(t, c.events.slices)
		told[e.first] = e.seen
	}
	for _, k := range c.settle() {
		f.commits++
		for a := range k.added {
			if at, ok := f.written[a.String()]; ok {
				f.kernel = append(f.kernel, k.seen.Sub(at))
				f.behind = append(f.behind, k.seen.Sub(told[a.String()]))
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
func (c *comparison) write(rate int) map[string]time.Time {
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
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	for begin := time.Now(); time.Since(begin) < sustained; c.writes++ {
		<-pace.C
		numbers <- c.writes
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

func (f *flood) print(w *tabwriter.Writer, p contender, rate int) {
	kernel, behind := results.Durations(f.kernel), results.Durations(f.behind)
	n := len(f.written)
	fmt.Fprintf(w, "%s\t%v\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t%.1f\t%.1f %%\t%s\t\n", p.name, p.period, rate, float64(n)/f.took.Seconds(),
		report.Seconds(kernel.P50), report.Seconds(kernel.P95), report.Seconds(kernel.Max), report.Seconds(behind.P50), report.Seconds(behind.P95),
		n-len(f.kernel), float64(f.commits)/f.took.Seconds(), 100*f.cpu.Seconds()/f.took.Seconds(), report.Seconds(f.cpu.Seconds()/float64(n)))
}
