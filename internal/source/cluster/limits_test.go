package cluster

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// largeService returns a Service of n ports, all of them good.
func largeService(n int) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1"},
	}
	for i := range n {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("port-%d", i), Protocol: corev1.ProtocolTCP, Port: int32(i + 1), NodePort: int32(i + 1),
		})
	}
	return s
}

// largeSlice returns a slice of that many ports and endpoints.
func largeSlice(ports, endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range ports {
		name, port := fmt.Sprintf("port-%d", i), int32(i+1)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i/256, i%256)}})
	}
	return s
}

// BenchmarkLargeObject has an event of an object at the sizes that an API server
// lets through, in which nothing differs: that is what many events are.
func BenchmarkLargeObject(b *testing.B) {
	run := func(name string, event func(*Cluster) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			c := New(nil, Config{Log: slog.New(slog.DiscardHandler)})
			for b.Loop() {
				if err := event(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, n := range []int{1000, 5000, 15_000, 40_000} {
		service, slice := largeService(n), largeSlice(n, 1)
		run(fmt.Sprintf("Service-%d", n), func(c *Cluster) error { return c.services.Add(service) })
		run(fmt.Sprintf("EndpointSlice-%d", n), func(c *Cluster) error { return c.slices.Add(slice) })
	}
	slice := largeSlice(2, 1000)
	run("EndpointSlice-1000x2", func(c *Cluster) error { return c.slices.Add(slice) })
}
