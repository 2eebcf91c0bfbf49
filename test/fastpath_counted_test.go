//go:build guest && counting

package test

import (
	"testing"
	"time"
)

// Figures of docs/fast-path.md. They are of a machine in which each instruction takes a nanosecond.

// 9.30, 9.32: while pods come and go under load, no new request is lost, and within a second of the change
// no pod that has left answers. With rules only, it is the same: a question to a pod that leaves may
// lose its answer.
func TestFastPathChurnInTime(t *testing.T) {
	for _, level := range []string{"off", "all"} {
		t.Run(level, func(t *testing.T) {
			if u := runChurn(t, level); u.last > time.Second {
				t.Errorf("a pod answers %s after it has left, want a second at most", u.last)
			}
		})
	}
}
