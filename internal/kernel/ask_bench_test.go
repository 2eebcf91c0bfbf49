package kernel

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// BenchmarkRead reads tables that are as expected: listed, and asked for by key. The
// constant askFrom is where the second takes less processor time.
func BenchmarkRead(b *testing.B) {
	for _, services := range []int{500, 1000, 2000, 4000, 8000, 16000, 64000} {
		desired := workload.Scenario(services, 4, 0)
		s := newSandbox(b)
		if _, err := s.Commit(Prepared{Plan: plan.Diff(&nft.Ruleset{}, desired)}, AnyGeneration); err != nil {
			b.Fatal(err)
		}
		for name, from := range map[string]int{"listed": math.MaxInt, "asked": 1} {
			b.Run(fmt.Sprintf("%dx4/%s", services, name), func(b *testing.B) {
				b.ReportAllocs()
				start := processorTime(b)
				for b.Loop() {
					if _, _, err := (reading{desired, from}).run(s.Conn); err != nil {
						b.Fatal(err)
					}
				}
				used := processorTime(b) - start
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/float64(6*services), "cpu-ns/element")
			})
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
