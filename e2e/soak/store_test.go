package soak

import (
	"fmt"
	"math/rand/v2"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	// anyKinds is how many Services are of any kind when they are created: there are
	// only some thousand node ports. Further ones have a ClusterIP, a port and up to
	// usualEndpoints, until they change.
	anyKinds       = 2000
	usualEndpoints = 4
)

// storeUsual creates the further Services.
func (s *soak) storeUsual() {
	s.T.Helper()
	store, numbers, failures := s.NewStore(), make(chan int), make(chan error, soakWriters)
	addresses := s.freeAddresses()
	var running sync.WaitGroup
	for w := range soakWriters {
		r := random{rand.New(rand.NewPCG(s.seed, 1<<40+uint64(w)))}
		running.Go(func() {
			var failure error
			for i := range numbers {
				if failure == nil {
					failure = store.Put(r.usual(i, addresses[i]))
				}
			}
			failures <- failure
		})
	}
	for i := anyKinds; i < s.services; i++ {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	for range soakWriters {
		if err := <-failures; err != nil {
			s.T.Fatalf("store Services: %v", err)
		}
	}
}

// freeAddresses returns ClusterIPs for the further Services.
func (s *soak) freeAddresses() map[int]string {
	s.T.Helper()
	before, err := s.API.CoreV1().Services(testbed.Namespace).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	used := map[string]bool{}
	for _, o := range before.Items {
		used[o.Spec.ClusterIP] = true
	}
	free, n := map[int]string{}, 0
	for i := anyKinds; i < s.services; i++ {
		for free[i] == "" || used[free[i]] {
			free[i], n = testbed.Address(10, 97, n).String(), n+1
		}
	}
	return free
}

// usual returns a Service of the usual kind as the API server stores it, with its
// address and its EndpointSlice.
func (r random) usual(i int, ip string) map[string]runtime.Object {
	name := soakName(i)
	port := r.port(0)
	port.TargetPort = intstr.FromInt32(testbed.EchoPort)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: testbed.Namespace}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{port},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
	}}
	slice := r.newSlice(name, soakSlices[0])
	slice.Namespace = testbed.Namespace
	slice.Ports, slice.Endpoints = slice.Ports[:1], slice.Endpoints[:min(usualEndpoints, len(slice.Endpoints))]
	address := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: "ipallocator.k8s.io"}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: testbed.Namespace, Name: name}},
	}
	for kind, o := range map[string]metav1.Object{"service": service, "slice": slice, "address": address} {
		o.SetUID(types.UID(fmt.Sprintf("soak-%s-%d", kind, i)))
		o.SetCreationTimestamp(metav1.Now())
	}
	return map[string]runtime.Object{
		"services/specs/" + testbed.Namespace + "/" + name:       service,
		"endpointslices/" + testbed.Namespace + "/" + slice.Name: slice,
		"ipaddresses/" + ip: address,
	}
}
