package testbed

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
	// LoadEndpoints is the number of endpoints of each Service.
	LoadEndpoints = 4
	// MaxLoad leaves addresses of the range of ClusterIPs to others.
	MaxLoad = 60_000
	Writers = 64 // that create objects at the same time
)

// Population is the Services of a comparison. They have a ClusterIP, one port,
// and endpoints of their own; only the endpoints of the probes are the pods of
// the laboratory.
type Population struct {
	C        *Cluster
	Config   *rest.Config // with the encoding of a proxy
	api      kubernetes.Interface
	Services int
	Probes   []int
}

// Populate creates Services with their EndpointSlices.
func (c *Cluster) Populate(services int) *Population {
	c.T.Helper()
	if services < 3 || services > MaxLoad {
		c.T.Fatalf("%d services: use 3 to %d", services, MaxLoad)
	}
	config := rest.CopyConfig(c.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	p := &Population{C: c, Config: config, api: c.ClientFor(config), Services: services, Probes: []int{0, services / 2, services - 1}}
	numbers, failures := make(chan int), make(chan error, Writers)
	var running sync.WaitGroup
	for range Writers {
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

func (p *Population) create(i int) error {
	if err := Insistently(func() error { return p.CreateSlice(i, p.Endpoints(i)...) }); err != nil {
		return err
	}
	return Insistently(func() error { return p.CreateService(i) })
}

func (p *Population) CreateService(i int) error {
	_, err := p.api.CoreV1().Services(Namespace).Create(p.C.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: LoadName(i)},
		Spec: corev1.ServiceSpec{
			ClusterIP: ClusterIP(i).String(),
			Ports:     []corev1.ServicePort{{Name: "http", Port: ServicePort, TargetPort: intstr.FromInt32(EchoPort)}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (p *Population) DeleteService(i int) error {
	return p.api.CoreV1().Services(Namespace).Delete(p.C.T.Context(), LoadName(i), metav1.DeleteOptions{})
}

func (p *Population) CreateSlice(i int, endpoints ...netip.Addr) error {
	_, err := p.api.DiscoveryV1().EndpointSlices(Namespace).Create(p.C.T.Context(), LoadSlice(i, endpoints), metav1.CreateOptions{})
	return err
}

func (p *Population) UpdateSlice(i int, endpoints ...netip.Addr) error {
	_, err := p.api.DiscoveryV1().EndpointSlices(Namespace).Update(p.C.T.Context(), LoadSlice(i, endpoints), metav1.UpdateOptions{})
	return err
}

func (p *Population) DeleteSlice(i int) error {
	return p.api.DiscoveryV1().EndpointSlices(Namespace).Delete(p.C.T.Context(), LoadName(i), metav1.DeleteOptions{})
}

func LoadSlice(i int, endpoints []netip.Addr) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: LoadName(i), Labels: map[string]string{discoveryv1.LabelServiceName: LoadName(i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(EchoPort))}},
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

// Endpoints returns those that service i is created with.
func (p *Population) Endpoints(i int) []netip.Addr {
	addresses := make([]netip.Addr, LoadEndpoints)
	for j := range addresses {
		addresses[j] = Address(10, 200, LoadEndpoints*i+j)
		for _, probe := range p.Probes {
			if i == probe {
				addresses[j] = p.C.Pods[j].IPv4
			}
		}
	}
	return addresses
}

// Addresses returns all that complete rules name: those of the services and
// those of their endpoints.
func (p *Population) Addresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for i := range p.Services {
		all[ClusterIP(i)] = true
		for _, e := range p.Endpoints(i) {
			all[e] = true
		}
	}
	return all
}

func LoadName(i int) string { return fmt.Sprintf("service-%d", i) }

// ClusterIP is that of service i; the first addresses are left to others.
func ClusterIP(i int) netip.Addr { return Address(10, 96, 256+i) }

func LoadTarget(i int) netip.AddrPort { return netip.AddrPortFrom(ClusterIP(i), ServicePort) }

// Address returns the n-th address of a network that starts with a.b.0.0.
func Address(a, b byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)})
}

// Insistently creates one object of many and retries: a busy API server gives
// up after a while, and may have created the object all the same.
func Insistently(create func() error) error {
	busy := func(err error) bool {
		return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
	}
	err := retry.OnError(retry.DefaultBackoff, busy, create)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
