package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestEndpointsFromAnnotation: 14.23, its values, and that a cluster cannot use it.
func TestEndpointsFromAnnotation(t *testing.T) {
	with := func(value string) *corev1.Service {
		s := sourcetest.Read[corev1.Service](t, sourcetest.WebYAML)
		s.Annotations = map[string]string{"nftproxy.dev/endpoints-from": value}
		return s
	}
	for value, want := range map[string]string{
		"default/kubernetes": "default/kubernetes", " default/kubernetes ": "default/kubernetes",
		"kubernetes": "", "": "", "a/b/c": "", "/kubernetes": "", "default/": "", "Default/kubernetes": "",
	} {
		s, found := Service(with(value), "")
		got := ""
		if s.Extra().EndpointsFrom != nil {
			got = s.Extra().EndpointsFrom.String()
		}
		if got != want || (want == "") != (len(found) == 1) {
			t.Errorf("%q: %q, %v", value, got, found)
		}
	}
	if s, found := ServiceOfCluster(with("default/kubernetes"), "", ""); s.Extra().EndpointsFrom != nil || len(found) != 1 || !found[0].Warning {
		t.Errorf("of a cluster: %v, %v", s.Extra().EndpointsFrom, found)
	}
}
