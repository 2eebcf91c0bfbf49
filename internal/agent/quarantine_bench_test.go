package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// BenchmarkQuarantine is the time until all Services are served that the kernel takes: when an
// empty kernel is filled, and when all Services change. It refuses none, or one.
func BenchmarkQuarantine(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for _, refuses := range []string{"none", "one"} {
			for _, cause := range []Cause{Start, Change} {
				b.Run(fmt.Sprintf("%d/%s/%s", n, cause, refuses), func(b *testing.B) { benchmarkQuarantine(b, n, cause, refuses == "one") })
			}
		}
	}
}

// countingCommits counts transactions.
type countingCommits struct {
	apply.Unobserved
	n *int
}

func (c countingCommits) Committed(apply.Commit) { *c.n++ }

func benchmarkQuarantine(b *testing.B, n int, cause Cause, refuses bool) {
	all, next := workload.Services(n, 4), workload.Services(n, 5)
	names := slices.SortedFunc(maps.Keys(all), model.ServiceName.Compare)
	prefix := names[n/3].String() + ":"
	var k *picky
	commits, used := 0, time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		w := newWorkshop(b, netlab.TestNamespace(b))
		k = &picky{Conn: w.kernel}
		w.Applier = apply.New(k, w.Log)
		w.Applier.Observer = countingCommits{n: &commits}
		sync := func(cause Cause, services states) {
			w.pending.update = &model.Update{Services: services, Nodes: nodes}
			if !w.sync(cause) {
				b.Fatal(w.log)
			}
		}
		if cause == Change {
			sync(Start, all)
		}
		if refuses {
			k.spoils = func(c *plan.Change) bool { return c.New != nil && strings.HasPrefix(c.New.Comment, prefix) }
		}
		commits = 0
		before := processorTime(b)
		b.StartTimer()
		if cause == Change {
			sync(cause, next)
		} else {
			sync(cause, all)
		}
		used += processorTime(b) - before
		if got := len(w.syncs[len(w.syncs)-1].Quarantined); (got == 1) != refuses {
			b.Fatalf("%d are quarantined", got)
		}
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(commits), "transactions/op")
	b.ReportMetric(float64(k.trials), "trials/op")
}

// processorTime returns the time that this process has used, which does not depend on what else
// the machine does.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
