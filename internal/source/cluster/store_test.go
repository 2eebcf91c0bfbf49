package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestClusterBarrier has the initial lists in all orders (13.1 to 13.3).
func TestClusterBarrier(t *testing.T) {
	for _, c := range []struct {
		lists string // in this order; "+" before an event without list
		calls int32
	}{
		{"Service", 0},
		{"EndpointSlice", 0},
		{"Node ServiceCIDR", 0},
		{"Service Node ServiceCIDR", 0},
		{"+Service +EndpointSlice +Node +ServiceCIDR", 0},
		{"Service EndpointSlice", 1},
		{"EndpointSlice Service", 1},
		{"Service EndpointSlice Node ServiceCIDR", 3},
		{"ServiceCIDR Node EndpointSlice Service", 1},
		{"Service +EndpointSlice Service EndpointSlice", 1},
		{"Service EndpointSlice Service EndpointSlice", 1},
	} {
		t.Run(c.lists, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{})
				l.changed = func() { l.calls.Add(1) }
				stores := storesOf(t, l.Cluster)
				for _, word := range strings.Fields(c.lists) {
					kind, event := strings.CutPrefix(word, "+")
					for _, s := range stores {
						switch {
						case s.kind != kind:
						case event:
							check(t, s.store.Add(s.first))
						default:
							check(t, s.store.Replace([]any{s.first}, "1"))
						}
					}
				}
				l.notified(c.calls)
				if _, err := l.Load(); (err == nil) != (c.calls > 0) {
					t.Errorf("Load: %v", err)
				}
			})
		})
	}
}

// storeCase is a store with two versions of one object.
type storeCase struct {
	kind          string
	store         cache.ReflectorStore
	first, second metav1.Object
}

func storesOf(t *testing.T, c *Cluster) []storeCase {
	return []storeCase{
		{"Service", c.services, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[corev1.Service](t, webSecondYAML)},
		{"EndpointSlice", c.slices, sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML), sourcetest.Read[discoveryv1.EndpointSlice](t, sliceSecondYAML)},
		{"Node", c.nodes, sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML), sourcetest.Read[corev1.Node](t, nodeSecondYAML)},
		{"ServiceCIDR", c.cidrs, sourcetest.Read[networkingv1.ServiceCIDR](t, cidrYAML), sourcetest.Read[networkingv1.ServiceCIDR](t, cidrSecondYAML)},
	}
}

// syncedLab has passed the barrier and knows no object.
func syncedLab(t *testing.T) *lab {
	l := newLab(t, Config{})
	l.changed = func() { l.calls.Add(1) }
	check(t, l.services.Replace(nil, "1"))
	check(t, l.slices.Replace(nil, "1"))
	l.notified(1)
	return l
}

// TestClusterStore takes each kind through all events that a reflector sends:
// objects are replaced and removed by name, each by itself (2.20).
func TestClusterStore(t *testing.T) {
	for i, kind := range []string{"Service", "EndpointSlice", "Node", "ServiceCIDR"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := syncedLab(t)
				s := storesOf(t, l.Cluster)[i]
				tombstone := cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(s.first).String(), Obj: s.first}
				for i, step := range []struct {
					name    string
					do      func() error
					calls   int32
					objects int
				}{
					{"delete unknown", func() error { return s.store.Delete(s.first) }, 0, 0},
					{"add", func() error { return s.store.Add(s.first) }, 1, 1},
					{"add again (2.21)", func() error { return s.store.Add(s.first) }, 0, 1},
					{"new version, equal model (13.6)", func() error { return s.store.Update(touched(s.first)) }, 0, 1},
					{"update", func() error { return s.store.Update(s.second) }, 1, 1},
					{"resync", s.store.Resync, 0, 1},
					{"replace by the same", func() error { return s.store.Replace([]any{touched(s.second)}, "2") }, 0, 1},
					{"replace by another version", func() error { return s.store.Replace([]any{s.first}, "3") }, 1, 1},
					{"replace by nothing", func() error { return s.store.Replace(nil, "4") }, 1, 0},
					{"add again", func() error { return s.store.Add(s.first) }, 1, 1},
					{"delete", func() error { return s.store.Delete(s.first) }, 1, 0},
					{"replace by one", func() error { return s.store.Replace([]any{s.first}, "5") }, 1, 1},
					{"tombstone (2.26)", func() error { return s.store.Delete(tombstone) }, 1, 0},
					{"tombstone again", func() error { return s.store.Delete(tombstone) }, 0, 0},
				} {
					fmt.Fprintln(t.Output(), step.name)
					check(t, step.do())
					l.notified(step.calls)
					want := step.objects
					if kind == "Node" && i > 0 {
						want = 1 // it counts as it was seen last (12.54)
					}
					if got := summary(t, l.Cluster); len(got) != want {
						t.Errorf("%d objects, want %d: %q", len(got), want, got)
					}
				}
				if err := s.store.Add(&corev1.Pod{}); err == nil {
					t.Error("a Pod was taken")
				}
			})
		})
	}
}

// touched returns a new version of an object that says nothing new.
func touched(o metav1.Object) metav1.Object {
	o.SetResourceVersion(o.GetResourceVersion() + "1")
	o.SetAnnotations(map[string]string{"example.com/touched": "yes"})
	return o
}

// TestClusterSkipped has objects that are never proxied, and one that becomes
// so and back (1.3, 1.9, 2.1, 2.3).
func TestClusterSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		for _, text := range []string{
			`{metadata: {namespace: a, name: headless}, spec: {clusterIP: None, ports: [{port: 80}]}}`,
			`{metadata: {namespace: a, name: labelled, labels: {service.kubernetes.io/service-proxy-name: ""}}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}`,
			`{metadata: {namespace: a, name: external}, spec: {type: ExternalName, clusterIP: 10.96.0.9, externalName: example.com}}`,
		} {
			check(t, l.services.Add(sourcetest.Read[corev1.Service](t, text)))
		}
		for _, text := range []string{
			`{metadata: {namespace: a, name: h-1, labels: {kubernetes.io/service-name: h, service.kubernetes.io/headless: ""}}, addressType: IPv4, endpoints: []}`,
			`{metadata: {namespace: a, name: f-1, labels: {kubernetes.io/service-name: web}}, addressType: FQDN, endpoints: []}`,
		} {
			check(t, l.slices.Add(sourcetest.Read[discoveryv1.EndpointSlice](t, text)))
		}
		l.notified(0)
		l.loaded()

		web := sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)
		check(t, l.services.Add(web))
		l.notified(1)
		labelled := web.DeepCopy()
		labelled.Labels = map[string]string{convert.LabelProxyName: "other"}
		check(t, l.services.Update(labelled))
		l.notified(1)
		l.loaded()
		check(t, l.services.Update(web))
		l.notified(1)
		l.loaded("Service a/web [10.96.0.1] 80")
	})
}

// TestClusterFieldErrors logs each problem of an object once, and uses the rest
// of the object (1.36).
func TestClusterFieldErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bad = `{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.1, externalIPs: [nonsense], ports: [{port: 80}]}}`
		words := []string{"level=WARN", `object="Service a/web"`, "field=spec.externalIPs[0]", "nonsense"}
		l := syncedLab(t)
		check(t, l.services.Add(sourcetest.Read[corev1.Service](t, bad)))
		l.logged(1, words...)
		l.loaded("Service a/web [10.96.0.1] 80")
		check(t, l.services.Update(touched(sourcetest.Read[corev1.Service](t, bad))))
		check(t, l.services.Replace([]any{sourcetest.Read[corev1.Service](t, bad)}, "2"))
		l.logged(1, words...)

		worse := sourcetest.Read[corev1.Service](t, strings.Replace(bad, "[nonsense]", "[nonsense, worse]", 1))
		check(t, l.services.Update(worse))
		l.logged(1, words...)
		l.logged(1, "field=spec.externalIPs[1]", "worse")

		check(t, l.services.Update(sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)))
		check(t, l.services.Update(sourcetest.Read[corev1.Service](t, bad)))
		l.logged(2, words...)
		check(t, l.services.Delete(worse))
		check(t, l.services.Replace([]any{sourcetest.Read[corev1.Service](t, bad)}, "3"))
		l.logged(3, words...)
	})
}

// TestClusterForgets keeps nothing about objects that are gone (2.23).
func TestClusterForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		const fqdn = `{metadata: {namespace: a, name: f-1, labels: {kubernetes.io/service-name: web}}, addressType: FQDN, endpoints: []}`
		slice := sourcetest.Read[discoveryv1.EndpointSlice](t, fqdn)
		check(t, l.slices.Add(slice))
		l.logged(1, "FQDN")
		if len(l.slices.objects) != 0 || len(l.slices.found) != 1 {
			t.Errorf("%d objects and %d findings, want 0 and 1", len(l.slices.objects), len(l.slices.found))
		}
		for name, forget := range map[string]func() error{
			"delete":  func() error { return l.slices.Delete(slice) },
			"replace": func() error { return l.slices.Replace(nil, "2") },
			"update": func() error {
				return l.slices.Update(sourcetest.Read[discoveryv1.EndpointSlice](t, strings.Replace(fqdn, "FQDN", "IPv4", 1)))
			},
		} {
			check(t, l.slices.Add(slice))
			check(t, forget())
			if len(l.slices.found) != 0 {
				t.Errorf("%s: the findings are kept", name)
			}
		}
	})
}

// 2.2, 2.20: a slice whose label changes belongs to the other Service alone from then on.
func TestClusterRelabelledSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		slice := sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML)
		check(t, l.slices.Add(slice))
		moved := slice.DeepCopy()
		moved.ResourceVersion, moved.Labels[discoveryv1.LabelServiceName] = "2", "other"
		check(t, l.slices.Update(moved))
		want := "EndpointSlice a/web-1 of other at 10.128.0.1"
		if got := summary(t, l.Cluster); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %s", got, want)
		}
	})
}
