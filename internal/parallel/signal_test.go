package parallel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestWait: a wait ends after its time, or with its context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if !Wait(ctx, time.Second) || time.Since(start) != time.Second {
			t.Errorf("it waited %s", time.Since(start))
		}
		if Wait(ctx, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("it ended after %s", time.Since(start))
		}
	})
}
