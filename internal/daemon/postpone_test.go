package daemon

import (
	"testing"
	"time"
)

// TestPending: the time before the source is read does not count as a sync that is
// late (13.26).
func TestPending(t *testing.T) {
	start := time.Unix(1000, 0)
	reads := start.Add(time.Hour)
	for _, c := range []struct {
		name                   string
		reads, requested, want time.Time
	}{
		{"nothing requested", reads, time.Time{}, time.Time{}},
		{"requested at the start", reads, start, reads},
		{"requested later", reads, reads.Add(1), reads.Add(1)},
		{"not postponed", time.Time{}, start, start},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Daemon{reads: c.reads}
			if got := d.pending(c.requested); !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
