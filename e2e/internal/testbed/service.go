package testbed

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	Namespace   = "default"
	ServicePort = 80
)

// Service is what the API server made of a Service.
type Service struct {
	Name       string
	ClusterIPs []string // IPv4, IPv6
	NodePorts  map[string]uint16
}

// Target is where a service is dialled.
type Target struct {
	Network string // tcp or udp
	Family  model.Family
	To      netip.AddrPort
}

func (t Target) String() string { return t.Network + " " + t.To.String() }

// Targets returns where a service is dialled: its ClusterIPs and, if it has
// NodePorts, the addresses of the node.
func (c *Cluster) Targets(s Service) []Target {
	var all []Target
	forEachFlow(func(network string, family model.Family) {
		all = append(all, Target{network, family, s.Frontend(family)})
		if port, ok := s.NodePorts[network]; ok {
			all = append(all, Target{network, family, netip.AddrPortFrom(c.Node.Address(family), port)})
		}
	})
	return all
}

// Frontend returns what clients dial.
func (s Service) Frontend(f model.Family) netip.AddrPort {
	for _, ip := range s.ClusterIPs {
		if a := netip.MustParseAddr(ip); model.FamilyOf(a) == f {
			return netip.AddrPortFrom(a, ServicePort)
		}
	}
	return netip.AddrPort{}
}

// DualStack returns a Service with a port of each protocol. The API server
// allocates the addresses, unless some are asked for.
func DualStack(name string, clusterIPs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIPs:     clusterIPs,
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: ServicePort, TargetPort: intstr.FromInt32(EchoPort)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: ServicePort, TargetPort: intstr.FromInt32(EchoPort)},
			},
		},
	}
	if len(clusterIPs) > 0 {
		s.Spec.ClusterIP = clusterIPs[0]
	}
	return s
}

// WithNodePorts returns the Service with NodePorts as well: those that a service
// had, if one is given.
func WithNodePorts(s *corev1.Service, like ...Service) *corev1.Service {
	s.Spec.Type = corev1.ServiceTypeNodePort
	for i, p := range s.Spec.Ports {
		for _, l := range like {
			s.Spec.Ports[i].NodePort = int32(l.NodePorts[p.Name])
		}
	}
	return s
}

func (c *Cluster) CreateService(s *corev1.Service) Service {
	c.T.Helper()
	made, err := c.API.CoreV1().Services(Namespace).Create(c.T.Context(), s, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	nodePorts := map[string]uint16{}
	for _, p := range made.Spec.Ports {
		if p.NodePort != 0 {
			nodePorts[p.Name] = uint16(p.NodePort)
		}
	}
	return Service{made.Name, made.Spec.ClusterIPs, nodePorts}
}

func (c *Cluster) DeleteService(s Service) {
	c.T.Helper()
	if err := c.API.CoreV1().Services(Namespace).Delete(c.T.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// SetEndpoints makes pods the endpoints of a service.
func (c *Cluster) SetEndpoints(s Service, pods ...*netlab.Host) {
	c.T.Helper()
	for _, f := range model.Families {
		c.SetSlice(s, f, pods...)
	}
}

// SetSlice writes the endpoints of one family, which are one object.
func (c *Cluster) SetSlice(s Service, f model.Family, pods ...*netlab.Host) {
	c.T.Helper()
	slices, slice := c.API.DiscoveryV1().EndpointSlices(Namespace), EndpointSlice(s, f, pods)
	_, err := slices.Update(c.T.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(c.T.Context(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		c.T.Fatal(err)
	}
}

func EndpointSlice(s Service, f model.Family, pods []*netlab.Host) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   SliceName(s, f),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: AddressType[f].Name,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(EchoPort))},
			{Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(EchoPort))},
		},
	}
	for _, p := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{p.Address(f).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(p.NodeName),
		})
	}
	return slice
}

func SliceName(s Service, f model.Family) string { return s.Name + "-" + AddressType[f].Suffix }

var AddressType = map[model.Family]struct {
	Name   discoveryv1.AddressType
	Suffix string
}{
	model.IPv4: {discoveryv1.AddressTypeIPv4, "v4"},
	model.IPv6: {discoveryv1.AddressTypeIPv6, "v6"},
}
