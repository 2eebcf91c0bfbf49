// Package parallel divides work over many values among the processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Spread calls do for the numbers below n, in parts of a size, several of them on several
// processors. It takes no memory if there is one part.
func Spread(n, size int, do func(first, end int)) {
	SpreadOver(runtime.GOMAXPROCS(0), n, size, do)
}

// SpreadOver is like [Spread] on at most so many processors.
func SpreadOver(processors, n, size int, do func(first, end int)) {
	if n <= size {
		if n > 0 {
			do(0, n)
		}
		return
	}
	spread(processors, n, size, do)
}

func spread(processors, n, size int, do func(first, end int)) {
	var next atomic.Int64
	work := func() {
		for {
			first := int(next.Add(int64(size))) - size
			if first >= n {
				return
			}
			do(first, min(first+size, n))
		}
	}
	var others sync.WaitGroup
	for range min((n-1)/size, processors-1) {
		others.Go(work)
	}
	work()
	others.Wait()
}
