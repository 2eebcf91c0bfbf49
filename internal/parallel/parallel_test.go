package parallel

import (
	"sync/atomic"
	"testing"
)

// TestSpread: each number is worked on once, in parts of at most the size.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ n, size int }{{0, 1}, {1, 1}, {2, 1}, {7, 8}, {8, 8}, {9, 8}, {1000, 3}} {
		done := make([]atomic.Int32, c.n)
		Spread(c.n, c.size, func(first, end int) {
			if first >= end || end-first > c.size {
				t.Errorf("%d in parts of %d: from %d to %d", c.n, c.size, first, end)
			}
			for i := first; i < end; i++ {
				done[i].Add(1)
			}
		})
		for i := range done {
			if times := done[i].Load(); times != 1 {
				t.Errorf("%d in parts of %d: number %d was worked on %d times", c.n, c.size, i, times)
			}
		}
	}
}

// TestSpreadAtOnce: one part takes no memory.
func TestSpreadAtOnce(t *testing.T) {
	sum := 0
	do := func(first, end int) { sum += end - first }
	if n := testing.AllocsPerRun(100, func() { Spread(5, 8, do) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
