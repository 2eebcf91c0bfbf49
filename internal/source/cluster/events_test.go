package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// stamped returns an IPv4 slice of a Service with an address, and with when
// that became its endpoint.
func stamped(t *testing.T, name, service, address, trigger string) *discoveryv1.EndpointSlice {
	s := sourcetest.Read[discoveryv1.EndpointSlice](t, strings.NewReplacer("web-1", name, ": web}", ": "+service+"}", "10.128.0.1", address).Replace(sourcetest.SliceYAML))
	if trigger != "" {
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger}
	}
	return s
}

// triggers loads, and returns the triggers in seconds after start.
func (l *lab) triggers(start time.Time) string {
	l.t.Helper()
	u, err := l.Load()
	check(l.t, err)
	var out []string
	for _, t := range u.Triggers {
		out = append(out, fmt.Sprintf("%s+%g", t.Family, t.Time.Sub(start).Seconds()))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestTriggers collects the times of changes between two loads (11.7, P98).
func TestTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		start := time.Now()
		at := func(seconds float64) string {
			return start.Add(time.Duration(seconds * float64(time.Second))).Format(time.RFC3339Nano)
		}
		check(t, l.slices.Add(stamped(t, "a-1", "a", "10.128.0.1", at(1.5))))
		check(t, l.slices.Add(stamped(t, "b-1", "b", "10.128.0.2", at(2))))
		check(t, l.slices.Update(stamped(t, "a-1", "a", "10.128.0.3", at(3))))
		check(t, l.slices.Update(stamped(t, "a-1", "a", "10.128.0.3", at(4)))) // the same endpoints
		check(t, l.slices.Add(stamped(t, "c-1", "c", "10.128.0.4", at(-5))))   // before the start
		check(t, l.slices.Add(stamped(t, "d-1", "d", "10.128.0.5", "yesterday")))
		check(t, l.slices.Add(stamped(t, "e-1", "e", "10.128.0.6", "")))
		if got, want := l.triggers(start), "IPv4+1.5 IPv4+2 IPv4+3"; got != want {
			t.Errorf("triggers %q, want %q", got, want)
		}
		if got := l.triggers(start); got != "" {
			t.Errorf("triggers are reported twice: %q", got)
		}

		check(t, l.slices.Add(stamped(t, "a-2", "a", "10.128.0.7", at(6))))
		check(t, l.slices.Update(stamped(t, "b-1", "b", "10.128.0.8", at(7))))
		check(t, l.slices.Delete(stamped(t, "a-1", "a", "10.128.0.3", at(8))))
		if got, want := l.triggers(start), "IPv4+7"; got != want {
			t.Errorf("triggers %q, want %q: a deletion discards those of its Service", got, want)
		}
	})
}

// TestCounts counts events (11.6), pending changes and rejected objects.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		counts := func(want Counts) {
			t.Helper()
			if diff := cmp.Diff(want, l.Counts()); diff != "" {
				t.Error(diff)
			}
		}
		web := sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)
		slice := stamped(t, "web-1", "web", "10.128.0.1", "")
		check(t, l.services.Add(web))
		check(t, l.services.Update(touched(web).(*corev1.Service)))
		check(t, l.slices.Add(slice))
		fqdn := slice.DeepCopy()
		fqdn.Name, fqdn.AddressType = "fqdn", discoveryv1.AddressTypeFQDN
		check(t, l.slices.Add(fqdn)) // rejected, not counted as an event
		counts(Counts{Services: 2, Slices: 1, PendingServices: 1, PendingSlices: 1, Rejected: 1})
		_, err := l.Load()
		check(t, err)
		counts(Counts{Services: 2, Slices: 1, Rejected: 1})

		bad := web.DeepCopy()
		bad.Spec.ExternalIPs = []string{"everywhere"}
		check(t, l.services.Update(bad))
		check(t, l.slices.Delete(slice))
		counts(Counts{Services: 3, Slices: 2, PendingSlices: 1, Rejected: 2})
		check(t, l.services.Delete(bad))
		counts(Counts{Services: 4, Slices: 2, PendingServices: 1, PendingSlices: 1, Rejected: 1})
	})
}

// TestLeavingNode: 10.10, 10.11.
func TestLeavingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		if l.Node() != nil {
			t.Error("a Node that was never seen")
		}
		node := sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML)
		leaving := func(what string, want bool) {
			t.Helper()
			check(t, l.nodes.Update(node))
			if n := l.Node(); n == nil || n.Leaving != want {
				t.Errorf("%s: %+v, want Leaving %t", what, n, want)
			}
		}
		leaving("a Node", false)
		node.Spec.Unschedulable = true
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
		leaving("cordoned and not ready", false)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectPreferNoSchedule})
		leaving("with the taint", true)
		node.Spec.Taints = nil
		leaving("without it again", false)
		node.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		leaving("being deleted", true)
		check(t, l.nodes.Delete(node))
		if n := l.Node(); n == nil || !n.Leaving {
			t.Errorf("after the Node is gone: %+v", n)
		}
	})
}
