package parallel

import "sync"

// Each calls run with the numbers up to n, for most of them at the same time, and use with what that returns,
// for one after the other.
func Each[T any](n, most int, run func(int) T, use func(int, T)) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, most)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			got := run(i)
			mu.Lock()
			defer mu.Unlock()
			use(i, got)
		})
	}
	wait.Wait()
}
