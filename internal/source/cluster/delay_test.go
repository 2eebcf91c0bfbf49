package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelay: only the Node is read before the delay is over (13.26).
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Delay: time.Minute})
		l.start()
		read := func() (kinds []string) {
			synctest.Wait()
			for _, a := range l.api.Actions() {
				kinds = append(kinds, a.GetResource().Resource)
			}
			slices.Sort(kinds)
			return slices.Compact(kinds)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if got, want := read(), []string{"nodes"}; !slices.Equal(got, want) {
			t.Errorf("before the delay is over, %v were read, want %v", got, want)
		}
		l.notified(0)
		time.Sleep(time.Nanosecond)
		if got, want := read(), []string{"endpointslices", "nodes", "servicecidrs", "services"}; !slices.Equal(got, want) {
			t.Errorf("after the delay, %v were read, want %v", got, want)
		}
		l.notified(1)
	})
}

// TestDelayEnds: a Cluster that ends during the delay reads nothing else.
func TestDelayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Delay: time.Minute})
		l.start()
		synctest.Wait()
	})
}
