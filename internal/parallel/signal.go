package parallel

import (
	"context"
	"time"
)

// Signal leaves a value in a channel with room for one, unless it has one: a receiver that was not ready gets it later, once.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Wait waits for some time. It returns false if ctx ends before.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
