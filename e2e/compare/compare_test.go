package compare

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	// sameChange is how long the transactions of one change may be apart.
	sameChange = 50 * time.Millisecond
)

// effort says how long something is measured: until it has taken that much
// time, within a minimum and a maximum count.
type effort struct {
	least, most int
	time        time.Duration
}

// repeat calls f with the number of each time.
func (e effort) repeat(f func(i int)) {
	begin := time.Now()
	for i := range e.most {
		if i >= e.least && time.Since(begin) > e.time {
			return
		}
		f(i)
	}
}

// contender is a proxy with extra lines for its configuration file.
type contender struct {
	name    results.Program
	program testbed.Program
	period  time.Duration // the least between two syncs; 0: that of the program
	config  string        // further lines
}

// comparison compares the proxies at one size: with the same API server,
// objects, namespace and observer.
type comparison struct {
	*testbed.Population
	// home has the configuration file. A proxy may watch all parent
	// directories, where other temporary files would wake it.
	home   string
	kernel *testbed.KernelWatch
	events *apiWatch
	report *testbed.ComparisonReport
	writes int // made by floods
	// starts and changes of each kind are measured so long.
	starts, changes effort

	contender
	proxy *testbed.Process
}

// BenchmarkCompare compares nftproxy with kube-proxy. COMPARE_SERVICES has the
// numbers of Services, separated by commas, COMPARE_TIME how long a change of
// each kind is measured; RESULTS names a file to write the figures to.
func BenchmarkCompare(b *testing.B) {
	r := testbed.NewReport(b)
	for _, services := range loadSizes(b, 10_000) {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			c := newComparison(b, r, services)
			for _, p := range []contender{
				{name: results.KubeProxy, program: testbed.KubeProxy},
				{name: results.Nftproxy, program: testbed.NFTProxy},
			} {
				c.contender = p
				c.measure()
			}
			fmt.Println(r.Table(services)) // a benchmark's log is cut short
		})
	}
	r.Write(b)
}

// loadSizes returns what COMPARE_SERVICES says.
func loadSizes(b *testing.B, otherwise int) (sizes []int) {
	b.Helper()
	text := os.Getenv("COMPARE_SERVICES")
	if text == "" {
		return []int{otherwise}
	}
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			b.Fatalf("COMPARE_SERVICES: %v: use numbers separated by commas", err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// timeFrom returns what a variable of the environment says.
func timeFrom(b *testing.B, name string, otherwise time.Duration) time.Duration {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		b.Fatalf("%s: %v: use a time such as 1m", name, err)
	}
	return d
}

// changeTime returns what COMPARE_TIME says.
func changeTime(b *testing.B) time.Duration { return timeFrom(b, "COMPARE_TIME", time.Minute) }

func newComparison(b *testing.B, r *testbed.ComparisonReport, services int) *comparison {
	b.Helper()
	c := testbed.NewCluster(b, testbed.LoadEndpoints+1, testbed.WithoutOwnEndpoint)
	begin := time.Now()
	p := c.Populate(services)
	b.Logf("%d services created in %v", services, time.Since(begin).Round(time.Millisecond))
	home, err := os.MkdirTemp("/run", "nftproxy-compare-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(home) })
	return &comparison{
		Population: p, home: home, kernel: testbed.WatchKernel(b, c.Node.Do, testbed.PodNetwork), events: watchAPI(p), report: r,
		starts: effort{5, 5, 0}, changes: effort{5, 20, changeTime(b)},
	}
}

// measure has one proxy do everything.
func (c *comparison) measure() {
	c.coldStart()
	c.settle()
	c.record(testbed.MemoryAtFirst, results.Record{Memory: c.proxy.Memory(c.C.T)})
	c.restart()
	c.replaceEndpoint()
	c.scale()
	c.replaceService()
	c.record(results.MemoryUse, results.Record{Memory: c.proxy.Memory(c.C.T)})
	c.stop()
	c.flush()
}

// await returns the first transaction that satisfies f, and its number among
// those that it looked at.
func (c *comparison) await(what string, f func(testbed.Commit) bool) (testbed.Commit, int) {
	t := c.C.T
	t.Helper()
	count := 0
	for begin := time.Now(); time.Since(begin) < testbed.Endless; {
		k, ok := c.kernel.Next(t, testbed.Calm)
		if !ok {
			c.proxy.CPU(t) // it runs
			continue
		}
		if count++; f(k) {
			return k, count
		}
	}
	t.Fatalf("%s: no transaction with %s after %v", c.name, what, testbed.Endless)
	return testbed.Commit{}, 0
}

// settle waits until the proxy is idle, and returns its commits.
func (c *comparison) settle() (all []testbed.Commit) {
	t := c.C.T
	t.Helper()
	for begin := time.Now(); time.Since(begin) < testbed.Endless; {
		used := c.proxy.CPU(t)
		next, ok := c.kernel.Next(t, testbed.Calm)
		if ok {
			all = append(all, next)
		} else if !c.proxy.Busy(t, used) {
			return all
		}
	}
	t.Fatalf("%s is not idle", c.name)
	return nil
}

// verify checks with connections that the probes are served by their endpoints.
func (c *comparison) verify() {
	c.C.T.Helper()
	for _, i := range c.Probes {
		if err := c.reaches(i, c.C.Pods[:testbed.LoadEndpoints]); err != nil {
			c.C.T.Fatal(err)
		}
	}
}

// reaches checks with connections that a service is served by pods, by all of
// them and by no others.
func (c *comparison) reaches(i int, pods []*netlab.Host) error {
	missing := map[string]bool{}
	for _, p := range pods {
		missing[p.Name] = true
	}
	wanted := maps.Clone(missing)
	for range 100 { // at random, each is among them
		answer, err := c.C.Client.Ask("tcp", testbed.LoadTarget(i), testbed.Silence)
		if err != nil || !wanted[answer.Name] {
			return fmt.Errorf("%s: %s: got %v, %v, want an answer of %v", c.name, testbed.LoadName(i), answer, err, wanted)
		}
		if delete(missing, answer.Name); len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s: %s: no answer of %v", c.name, testbed.LoadName(i), missing)
}
