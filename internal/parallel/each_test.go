package parallel

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestEach proves that each number is run once, for at most so many at the same time, and that results are used
// one after the other.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		got := make([]int, 10)
		Each(len(got), 3, func(i int) int {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return 2 * i
		}, func(i, n int) { got[i] += n })
		if want := []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}; !slices.Equal(got, want) || most.Load() != 3 {
			t.Errorf("got %v by %d at the same time", got, most.Load())
		}
	})
}
