package parallel

import (
	"iter"
	"sync"
)

// Ahead makes each value of a sequence while the one before is used. A panic in the sequence, also
// after the last value that was wanted, is one where its values are used.
func Ahead[T any](seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		made, done := make(chan T), make(chan struct{})
		var failure any
		var all sync.WaitGroup
		all.Go(func() {
			defer close(made)
			defer func() { failure = recover() }()
			for v := range seq {
				select {
				case made <- v:
				case <-done:
					return
				}
			}
		})
		defer func() {
			close(done)
			if all.Wait(); failure != nil {
				panic(failure)
			}
		}()
		for v := range made {
			if !yield(v) {
				return
			}
		}
	}
}
