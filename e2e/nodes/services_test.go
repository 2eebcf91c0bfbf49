package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// addServices creates Services in a namespace of their own, which is removed at the
// end of the test. Each has four of the endpoints, if there are any.
func (c *cluster) addServices(t testing.TB, namespace string, services int, endpoints ...string) {
	t.Helper()
	_, err := c.API.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.API.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	const writers = 8
	errs := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := w; i < services && errs[w] == nil; i += writers {
				errs[w] = c.addService(t.Context(), namespace, i, endpoints)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) addService(ctx context.Context, namespace string, i int, endpoints []string) error {
	name := fmt.Sprintf("s%d", i)
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := c.API.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil || len(endpoints) == 0 {
		return err
	}
	port := int32(80)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}}}
	for j := range 4 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{endpoints[(4*i+j)%len(endpoints)]}})
	}
	_, err := c.API.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{})
	return err
}
