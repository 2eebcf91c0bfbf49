package parallel

import "testing"

// TestSignal: a channel with room for one has one value, however often it is signalled.
func TestSignal(t *testing.T) {
	c := make(chan struct{}, 1)
	for range 3 {
		Signal(c)
	}
	if len(c) != 1 {
		t.Errorf("%d values", len(c))
	}
	<-c
	if Signal(c); len(c) != 1 {
		t.Errorf("%d values after one was received", len(c))
	}
}
