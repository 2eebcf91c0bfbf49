package datapath

import (
	"encoding/json"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// objects are Services and the EndpointSlice of each.
type objects struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

// withEndpoint returns Services with one endpoint each. The endpoint of the
// middle one is given, the others have unused addresses.
func withEndpoint(endpoint netip.Addr, services int) objects {
	var o objects
	for i := range services {
		to := testbed.Address(10, 200, i)
		if i == services/2 {
			to = endpoint
		}
		o.add(to)
	}
	return o
}

// add adds a Service with an endpoint, and returns it with its slice.
func (o *objects) add(to netip.Addr) (*corev1.Service, *discoveryv1.EndpointSlice) {
	i := len(o.services)
	slice := testbed.LoadSlice(i, []netip.Addr{to})
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	slice.Namespace = testbed.Namespace
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: testbed.LoadName(i), Namespace: testbed.Namespace},
		Spec: corev1.ServiceSpec{
			ClusterIP:  testbed.ClusterIP(i).String(),
			ClusterIPs: []string{testbed.ClusterIP(i).String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: testbed.ServicePort, TargetPort: intstr.FromInt32(testbed.EchoPort)}},
		},
	}
	o.slices, o.services = append(o.slices, slice), append(o.services, service)
	return service, slice
}

// write writes the objects into a file as kubectl would.
func (o objects) write(b *testing.B, file string) {
	b.Helper()
	list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for i := range o.services {
		list.Items = append(list.Items, runtime.RawExtension{Object: o.services[i]}, runtime.RawExtension{Object: o.slices[i]})
	}
	text, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		b.Fatal(err)
	}
}

// create creates the objects, many at a time.
func (o objects) create(b *testing.B, c *testbed.Cluster) {
	b.Helper()
	began := time.Now()
	var running sync.WaitGroup
	for w := range testbed.Writers {
		running.Go(func() {
			for i := w; i < len(o.services) && !b.Failed(); i += testbed.Writers {
				if err := o.createOne(b, c, i); err != nil {
					b.Errorf("create %s: %v", o.services[i].Name, err)
					return
				}
			}
		})
	}
	if running.Wait(); b.Failed() {
		b.FailNow()
	}
	b.Logf("%d services created in %v", len(o.services), time.Since(began).Round(time.Millisecond))
}

func (o objects) createOne(b *testing.B, c *testbed.Cluster, i int) error {
	err := testbed.Insistently(func() error {
		_, err := c.API.CoreV1().Services(testbed.Namespace).Create(b.Context(), o.services[i], metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return testbed.Insistently(func() error {
		_, err := c.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Create(b.Context(), o.slices[i], metav1.CreateOptions{})
		return err
	})
}
