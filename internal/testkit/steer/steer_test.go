package steer

import "testing"

// TestEveryChoice: the 256 values of a byte lead to every value of IntN, none
// much more often than another, and each takes one byte.
func TestEveryChoice(t *testing.T) {
	for n := 1; n <= 64; n++ {
		seen := make([]int, n)
		for b := range 256 {
			r, left := New([]byte{byte(b)})
			seen[r.IntN(n)]++
			if left.Left() != 0 {
				t.Fatalf("IntN(%d) took no byte", n)
			}
		}
		for v, times := range seen {
			if times < 256/n || times > 256/n+1 {
				t.Errorf("IntN(%d) is %d for %d of 256 bytes", n, v, times)
			}
		}
	}
}

// TestExhausted: without bytes every decision is the first one, and is made.
func TestExhausted(t *testing.T) {
	r, _ := New(nil)
	for n := 1; n <= 300; n++ {
		if got := r.IntN(n); got != 0 {
			t.Errorf("IntN(%d) = %d, want 0", n, got)
		}
	}
}
