package kubelets

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// Services that come at the same moment get different addresses, and keep them.
func TestBalancedAddresses(t *testing.T) {
	api := fake.NewClientset()
	for _, name := range []string{"a", "b"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}}
		if _, err := api.CoreV1().Services("n").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b := &balancer{c: &Cluster{API: api}}
	for range 2 { // gives addresses, and finds them
		services, err := api.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range services.Items {
			if _, err := b.service(t.Context(), &services.Items[i], services.Items); err != nil {
				t.Fatal(err)
			}
		}
	}
	services, err := api.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := map[netip.Addr]string{}
	for _, s := range services.Items {
		for _, a := range ingress(&s) {
			if other, taken := owner[a]; taken {
				t.Errorf("%s and %s have the address %s", other, s.Name, a)
			}
			owner[a] = s.Name
		}
	}
	if len(owner) != 4 {
		t.Errorf("the Services have %d addresses, want 4: %v", len(owner), owner)
	}
}
