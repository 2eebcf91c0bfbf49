package e2e

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

const (
	// loadEndpoints is the number of endpoints of each Service.
	loadEndpoints = 4
	// maxLoad leaves addresses of the range of ClusterIPs to others.
	maxLoad = 60_000
	writers = 64 // that create objects at the same time
)

// population is the Services of a comparison. They have a ClusterIP, one port,
// and endpoints of which no other Service has one; but those of the probes are
// the pods of the laboratory.
type population struct {
	C        *cluster
	Config   *rest.Config // with the encoding of a proxy
	api      kubernetes.Interface
	Services int
	Probes   []int
}

// populate creates Services with their EndpointSlices.
func (c *cluster) Populate(services int) *population {
	c.T.Helper()
	if services < 3 || services > maxLoad {
		c.T.Fatalf("%d services: use 3 to %d", services, maxLoad)
	}
	config := rest.CopyConfig(c.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	p := &population{C: c, Config: config, api: c.ClientFor(config), Services: services, Probes: []int{0, services / 2, services - 1}}
	numbers, failures := make(chan int), make(chan error, writers)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for i := range numbers {
				if err := p.create(i); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	go func() {
		defer close(numbers)
		for i := range services {
			select {
			case numbers <- i:
			case <-c.T.Context().Done():
				return
			}
		}
	}()
	running.Wait()
	select {
	case err := <-failures:
		c.T.Fatalf("create services: %v", err)
	default:
	}
	return p
}

func (p *population) create(i int) error {
	if err := insistently(func() error { return p.CreateSlice(i, p.Endpoints(i)...) }); err != nil {
		return err
	}
	return insistently(func() error { return p.CreateService(i) })
}

func (p *population) CreateService(i int) error {
	_, err := p.api.CoreV1().Services(namespace).Create(p.C.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: loadName(i)},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP(i).String(),
			Ports:     []corev1.ServicePort{{Name: "http", Port: servicePort, TargetPort: intstr.FromInt32(echoPort)}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (p *population) DeleteService(i int) error {
	return p.api.CoreV1().Services(namespace).Delete(p.C.T.Context(), loadName(i), metav1.DeleteOptions{})
}

func (p *population) CreateSlice(i int, endpoints ...netip.Addr) error {
	_, err := p.api.DiscoveryV1().EndpointSlices(namespace).Create(p.C.T.Context(), loadSlice(i, endpoints), metav1.CreateOptions{})
	return err
}

func (p *population) UpdateSlice(i int, endpoints ...netip.Addr) error {
	_, err := p.api.DiscoveryV1().EndpointSlices(namespace).Update(p.C.T.Context(), loadSlice(i, endpoints), metav1.UpdateOptions{})
	return err
}

func (p *population) DeleteSlice(i int) error {
	return p.api.DiscoveryV1().EndpointSlices(namespace).Delete(p.C.T.Context(), loadName(i), metav1.DeleteOptions{})
}

func loadSlice(i int, endpoints []netip.Addr) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: loadName(i), Labels: map[string]string{discoveryv1.LabelServiceName: loadName(i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(echoPort))}},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{e.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new("remote"),
		})
	}
	return s
}

// endpoints returns those that service i is created with.
func (p *population) Endpoints(i int) []netip.Addr {
	addresses := make([]netip.Addr, loadEndpoints)
	for j := range addresses {
		addresses[j] = address(10, 200, loadEndpoints*i+j)
		for _, probe := range p.Probes {
			if i == probe {
				addresses[j] = p.C.Pods[j].IPv4
			}
		}
	}
	return addresses
}

// addresses returns all that complete rules name: those of the services and
// those of their endpoints.
func (p *population) Addresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for i := range p.Services {
		all[clusterIP(i)] = true
		for _, e := range p.Endpoints(i) {
			all[e] = true
		}
	}
	return all
}

func loadName(i int) string { return fmt.Sprintf("service-%d", i) }

// clusterIP is that of service i; the first addresses are left to others.
func clusterIP(i int) netip.Addr { return address(10, 96, 256+i) }

func loadTarget(i int) netip.AddrPort { return netip.AddrPortFrom(clusterIP(i), servicePort) }

// address returns the n-th address of a network that starts with a.b.0.0.
func address(a, b byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)})
}

// insistently creates an object of a great number: an API server that has much to
// do gives up after a while, and may have done it all the same.
func insistently(create func() error) error {
	busy := func(err error) bool {
		return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
	}
	err := retry.OnError(retry.DefaultBackoff, busy, create)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
