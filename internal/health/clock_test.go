package health

import (
	"net/http"
	"testing"
	"time"
	"unsafe"
)

// asOf returns a moment as it was taken before the clock of the machine was set
// forward, or back if by is negative. No function of package time makes one:
// this adds to the seconds of its wall clock, which lie above 30 bits of
// nanoseconds, and leaves the monotonic clock alone.
func asOf(t time.Time, by time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall -= uint64(int64(by/time.Second)) << 30
	return t
}

// 10.5: how long a request waits does not depend on what the clock is set to.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			s := newState()
			if now := time.Now(); !asOf(now, by).Equal(now) || !asOf(now, by).Round(0).Equal(now.Add(-by).Round(0)) {
				t.Fatalf("%s is %s of before", now, asOf(now, by))
			}
			s.Pending = asOf(time.Now(), by)
			s.expect(t, "a request waits", http.StatusOK, http.StatusOK)
			s.Pending = asOf(time.Now().Add(-time.Minute), by)
			s.expect(t, "it waits for too long", http.StatusServiceUnavailable, http.StatusServiceUnavailable)
		})
	}
}
