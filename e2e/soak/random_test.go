package soak

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// random makes choices. A seed decides them all.
type random struct{ *rand.Rand }

func (r random) oneIn(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// some returns each of the things with a chance of one half.
func some[T any](r random, from ...T) (out []T) {
	for _, x := range from {
		if r.oneIn(2) {
			out = append(out, x)
		}
	}
	return out
}

const (
	schedulerAnnotation = "nftproxy.dev/scheduler"
	weightAnnotation    = "nftproxy.dev/weight"
	proxyNameLabel      = "service.kubernetes.io/service-proxy-name"
	mostEndpoints       = 20
)

func soakName(i int) string { return fmt.Sprint("soak-", i) }

// soakProtocols are those of the ports of a Service, by their number.
var soakProtocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// newService returns a Service of any kind.
func (r random) newService(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Labels: map[string]string{}}}
	s.Spec.IPFamilyPolicy = new(pick(r, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack))
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		s.Spec.IPFamilies = []corev1.IPFamily{pick(r, corev1.IPv4Protocol, corev1.IPv6Protocol)}
	}
	for i := range 1 + r.IntN(len(soakProtocols)) {
		s.Spec.Ports = append(s.Spec.Ports, r.port(i))
	}
	r.setType(s)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return s
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP && r.oneIn(8) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, maybe := range []func(*corev1.Service){r.setAffinity, r.setInternalPolicy, r.setExternalIPs, r.setScheduler} {
		if r.oneIn(4) {
			maybe(s)
		}
	}
	return s
}

func (r random) port(i int) corev1.ServicePort {
	return corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: soakProtocols[i], Port: int32(1 + r.IntN(1000))}
}

func (r random) setType(s *corev1.Service) {
	s.Spec.Type = pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	outside := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort, s.Spec.ExternalName = "", 0, ""
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerSourceRanges, s.Spec.AllocateLoadBalancerNodePorts = nil, nil
	}
	if !outside {
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	}
	switch {
	case outside:
		r.setExternalPolicy(s)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		s.Spec.ExternalName, s.Spec.InternalTrafficPolicy = "example.com", nil
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = "", nil, nil, nil
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	}
}

func (r random) setExternalPolicy(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = pick(r, corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster)
	if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = 0
	}
}

func (r random) setInternalPolicy(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(pick(r, corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster))
}

func (r random) setAffinity(s *corev1.Service) {
	s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if r.oneIn(2) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(pick[int32](r, 60, 600, 10800))}}
	}
}

// setExternalIPs may give addresses that another Service has as well.
func (r random) setExternalIPs(s *corev1.Service) {
	s.Spec.ExternalIPs = nil
	for range r.IntN(3) {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, pick(r, fmt.Sprintf("203.0.113.%d", r.IntN(256)), fmt.Sprintf("2001:db8:203::%x", 256+r.IntN(256))))
	}
}

func (r random) setSourceRanges(s *corev1.Service) {
	s.Spec.LoadBalancerSourceRanges = nil
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerSourceRanges = some(r, "198.18.0.0/15", "192.0.2.0/24", "192.0.2.7/32", "2001:db8::/32", "10.0.0.0/8")
	}
}

func (r random) setScheduler(s *corev1.Service) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[schedulerAnnotation] = pick(r, "round-robin", "random", "source-hash", "nonsense")
	if r.oneIn(3) {
		delete(s.Annotations, schedulerAnnotation)
	}
}

// ingress returns random status addresses of a load balancer.
func (r random) ingress() (out []corev1.LoadBalancerIngress) {
	for range r.IntN(3) {
		out = append(out, corev1.LoadBalancerIngress{
			IP:     pick(r, fmt.Sprintf("198.51.100.%d", r.IntN(256)), fmt.Sprintf("2001:db8:51::%x", r.IntN(256))),
			IPMode: new(pick(r, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)),
		})
	}
	return out
}

// soakSlice says which EndpointSlice of a Service is meant: a family may have two.
type soakSlice struct {
	family model.Family
	second bool
}

var soakSlices = []soakSlice{{model.IPv4, false}, {model.IPv6, false}, {model.IPv4, true}}

func (which soakSlice) name(service string) string {
	name := service + "-" + testbed.AddressType[which.family].Suffix
	if which.second {
		name += "-more"
	}
	return name
}

func (r random) newSlice(service string, which soakSlice) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: which.name(service), Annotations: map[string]string{},
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: testbed.AddressType[which.family].Name,
	}
	for i, protocol := range soakProtocols {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Protocol: new(protocol), Port: new(int32(testbed.EchoPort))})
	}
	r.scale(s)
	return s
}

// scale gives the slice another number of endpoints.
func (r random) scale(s *discoveryv1.EndpointSlice) {
	n := pick(r, r.IntN(5), r.IntN(mostEndpoints+1))
	for len(s.Endpoints) < n {
		s.Endpoints = append(s.Endpoints, r.endpoint(s.AddressType))
	}
	s.Endpoints = s.Endpoints[:n]
}

// endpoint returns one, which may be a pod of this node.
func (r random) endpoint(kind discoveryv1.AddressType) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}}
	local := r.oneIn(3)
	switch {
	case local:
		e.NodeName = new(testbed.NodeName)
	case !r.oneIn(8):
		e.NodeName = new("remote")
	}
	n := r.IntN(1<<16 - 1)
	a := testbed.Address(10, 200, n)
	if kind == discoveryv1.AddressTypeIPv6 {
		a = netip.MustParseAddr(fmt.Sprintf("fd00:10:200::%x", n+1))
	}
	e.Addresses = []string{a.String()}
	return e
}
