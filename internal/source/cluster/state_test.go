package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestClusterState: the API server is unusable when requests have failed for a
// while, and not because of a single watch that ends.
func TestClusterState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
		var services fault
		l.api.PrependReactor("list", "services", services.react)
		watches := interceptWatches(l, "services")
		l.api.PrependWatchReactor("services", services.reactWatch)
		start := time.Now()
		l.start()
		synctest.Wait()
		usable := func(want bool, since time.Time) {
			t.Helper()
			if s := l.State(); (s.Err == nil) != want || s.Since.Sub(since).Abs() > 2*time.Second {
				t.Errorf("after %v: %v since %v, want usable %v since %v", time.Since(start), s.Err, s.Since.Sub(start), want, since.Sub(start))
			}
		}
		usable(true, start)
		for range 100 {
			(<-watches).Stop()
			time.Sleep(10 * time.Second)
			usable(true, start)
		}
		services.set(forbidden("services"))
		(<-watches).Stop()
		broken := time.Now()
		time.Sleep(unusableAfter - 5*time.Second)
		usable(true, start)
		time.Sleep(10 * time.Second)
		usable(false, broken)
		time.Sleep(aWhile)
		usable(false, broken)
		s := l.State()
		if text := s.Err.Error(); !strings.HasPrefix(text, "the API server cannot be read: list Services: ") || !strings.Contains(text, "no such role") {
			t.Error(text)
		}
		if s.Failures < 10 || s.LastSuccess.After(broken) {
			t.Errorf("%d failures, last success %v after the start", s.Failures, s.LastSuccess.Sub(start))
		}
		services.clear()
		cleared := time.Now()
		time.Sleep(aWhile)
		s = l.State()
		if s.Err != nil || s.Since.Before(cleared) || s.LastSuccess.Before(cleared) {
			t.Errorf("repaired after %v: %+v", cleared.Sub(start), s)
		}
	})
}

// mute is a Reader whose lists get no answer.
type mute struct{ Reader }

func (mute) List(ctx context.Context, _ metav1.ListOptions, _ func(runtime.Object) error) (metav1.ListMeta, error) {
	<-ctx.Done()
	return metav1.ListMeta{}, ctx.Err()
}

// TestClusterStateSilence: requests without an answer count as failures.
func TestClusterStateSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{})
		l.client.Slices = mute{l.client.Slices}
		start := time.Now()
		l.start()
		time.Sleep(unusableAfter - time.Nanosecond)
		if s := l.State(); s.Err != nil {
			t.Error(s.Err)
		}
		time.Sleep(time.Nanosecond)
		if s := l.State(); fmt.Sprint(s.Err) != "the API server cannot be read: list EndpointSlices: no answer" || !s.Since.Equal(start) {
			t.Errorf("%v since %v", s.Err, s.Since)
		}
	})
}

// TestClusterStateServiceCIDRs: they may be forbidden (14.3): that is a warning.
func TestClusterStateServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{})
		var f fault
		f.set(forbidden("servicecidrs"))
		l.api.PrependReactor("list", "servicecidrs", f.react)
		l.start()
		time.Sleep(aWhile)
		s := l.State()
		if s.Err != nil || s.Warned != 1 || !strings.Contains(strings.Join(s.Warnings, "\n"), "no such role") {
			t.Errorf("%+v", s)
		}
	})
}

// TestClusterStateWarnings: the problems of objects are warnings, the first ones
// by name if there are many.
func TestClusterStateWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range 50 {
			s := sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML)
			s.Name = fmt.Sprintf("web-%02d", i)
			s.Endpoints[0].Addresses[0] = "127.0.0.1"
			objects = append(objects, s)
		}
		l := newLab(t, Config{}, objects...)
		l.start()
		synctest.Wait()
		s := l.State()
		if s.Warned != 50 || len(s.Warnings) != 21 || s.Warnings[20] != "and 30 more" ||
			!strings.HasPrefix(s.Warnings[1], "EndpointSlice a/web-01: endpoints[0].addresses[0]: \"127.0.0.1\" is a loopback address") {
			t.Errorf("%d: %s", s.Warned, strings.Join(s.Warnings, "\n"))
		}
	})
}
