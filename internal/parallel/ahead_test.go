package parallel

import (
	"iter"
	"slices"
	"testing"
)

// TestAhead proves that a value is made while the one before is used, that values end
// when they are no longer wanted, and that a panic reaches the one who asks.
func TestAhead(t *testing.T) {
	made := make(chan int, 10)
	count := func(yield func(int) bool) {
		for i := range 10 {
			if i == 5 {
				panic("five")
			}
			made <- i
			if !yield(i) {
				return
			}
		}
	}
	for i := range Ahead(iter.Seq[int](count)) {
		if <-made != i {
			t.Error("another order")
		}
		if i == 2 {
			if next := <-made; next != 3 { // blocks forever if nothing is made ahead
				t.Errorf("%d was made ahead", next)
			}
			break
		}
	}
	var got []int
	defer func() {
		if p := recover(); p != "five" || !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("panic %v after %v", p, got)
		}
	}()
	for i := range Ahead(iter.Seq[int](count)) {
		got = append(got, i)
	}
}

// TestAheadFailsLate: a panic after the last wanted value is not lost.
func TestAheadFailsLate(t *testing.T) {
	defer func() {
		if p := recover(); p != "late" {
			t.Errorf("panic %v", p)
		}
	}()
	for range Ahead(func(yield func(int) bool) {
		yield(0)
		panic("late")
	}) {
		break
	}
}
