package soak

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	r, store := random{rand.New(rand.NewPCG(s.seed, 1<<40))}, s.NewStore()
	for i := anyKinds; i < s.services; i++ {
		service, slice := r.usual(i)
		store.Put("services/specs/"+testbed.Namespace+"/"+service.Name, service)
		store.Put("ipaddresses/"+service.Spec.ClusterIP, &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Name: service.Spec.ClusterIP, UID: service.UID + "-ip", CreationTimestamp: metav1.Now(), Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: "ipallocator.k8s.io"}},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: testbed.Namespace, Name: service.Name}},
		})
		store.Put("endpointslices/"+testbed.Namespace+"/"+slice.Name, slice)
	}
	if s.services > anyKinds {
		store.Flush()
	}
}

// usual returns a Service of the usual kind as the API server stores it, with its
// EndpointSlice.
func (r random) usual(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, ip := soakName(i), testbed.Address(10, 97, i).String()
	port := r.port(0)
	port.TargetPort = intstr.FromInt32(testbed.EchoPort)
	service := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{port},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
	}}
	slice := r.newSlice(name, soakSlices[0])
	slice.Ports, slice.Endpoints = slice.Ports[:1], slice.Endpoints[:min(usualEndpoints, len(slice.Endpoints))]
	service.Name = name
	for n, o := range []metav1.Object{service, slice} {
		o.SetNamespace(testbed.Namespace)
		o.SetUID(types.UID(fmt.Sprintf("soak-%d-%d", i, n)))
		o.SetCreationTimestamp(metav1.Now())
	}
	return service, slice
}
