package cluster

import (
	"fmt"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestClusterServiceCIDRs: 13.9. The ranges are the union over all objects, and
// every update has them in the same form: the agent compares them.
func TestClusterServiceCIDRs(t *testing.T) {
	l := newLab(t, Config{})
	check(t, l.services.Replace(nil, "1"))
	check(t, l.slices.Replace(nil, "1"))
	put := func(name, ranges string) {
		t.Helper()
		check(t, l.cidrs.Add(sourcetest.Read[networkingv1.ServiceCIDR](t, fmt.Sprintf(`{metadata: {name: %s}, spec: {cidrs: [%s]}}`, name, ranges))))
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for range 20 {
			u, err := l.Load()
			check(t, err)
			s, err := l.Snapshot()
			check(t, err)
			if got := fmt.Sprint(u.ServiceCIDRs); got != fmt.Sprint(want) || !slices.Equal(s.ServiceCIDRs, u.ServiceCIDRs) {
				t.Fatalf("%s: %s in an update, %s in a snapshot, want %s", when, got, s.ServiceCIDRs, want)
			}
		}
	}
	expect("none")
	put("kubernetes", "10.96.0.0/16, fd00:96::/112")
	put("more", "10.112.0.0/16")
	put("same", "10.96.0.0/16")
	put("inside", "10.96.128.0/17, fd00:96::1:0/112")
	want := []string{"10.96.0.0/16", "10.112.0.0/16", "fd00:96::/112", "fd00:96::1:0/112"}
	expect("four objects", want...)
	check(t, l.cidrs.Delete(sourcetest.Read[networkingv1.ServiceCIDR](t, `{metadata: {name: same}}`)))
	expect("one that another object has is gone", want...)
	check(t, l.cidrs.Delete(sourcetest.Read[networkingv1.ServiceCIDR](t, `{metadata: {name: kubernetes}}`)))
	expect("the first is gone", "10.96.128.0/17", "10.112.0.0/16", "fd00:96::1:0/112")
}
