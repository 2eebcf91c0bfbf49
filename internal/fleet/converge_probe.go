package fleet

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

const (
	// LabelConverge is on all objects of a measurement.
	LabelConverge = "nftproxy.dev/converge"
	probeName     = "probe"
	probePort     = 9 // discard
)

// probe is a Service without traffic, whose endpoint changes in each round. Endpoints have
// addresses for documentation (RFC 5737, RFC 3849), where no host answers.
type probe struct {
	*kubectl.Scratch
	api       rest.Interface
	proxyName string // see [ConvergeOptions]
	family    corev1.IPFamily
	endpoint  netip.AddrPort // of the last change
}

func (p *probe) service() string { return p.Name + "/" + probeName }

const (
	core      = kubectl.CoreAPI
	discovery = "/apis/discovery.k8s.io/v1"
)

func (p *probe) create(ctx context.Context) error {
	if err := p.Create(ctx, nil); err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: p.Meta(probeName), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: probePort, Protocol: corev1.ProtocolTCP}}}}
	if p.proxyName != "" {
		service.Labels[convert.LabelProxyName] = p.proxyName
	}
	if err := p.Send(ctx, p.api.Post().AbsPath(p.Path(core, "services")), service, service); err != nil {
		return fmt.Errorf("create Service %s: %w", p.service(), err)
	}
	p.family = corev1.IPv4Protocol
	if len(service.Spec.IPFamilies) > 0 {
		p.family = service.Spec.IPFamilies[0]
	}
	slice := p.slice(0)
	slice.ObjectMeta = p.Meta(probeName)
	slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy] = probeName, "kubectl-nftproxy"
	if err := p.Send(ctx, p.api.Post().AbsPath(p.Path(discovery, "endpointslices")), slice, nil); err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", p.service(), err)
	}
	return nil
}

func (p *probe) change(ctx context.Context, round int) error {
	slice := p.slice(round)
	request := p.api.Patch(types.MergePatchType).AbsPath(p.Path(discovery, "endpointslices"), probeName)
	if err := p.Send(ctx, request, map[string]any{"endpoints": slice.Endpoints}, nil); err != nil {
		return fmt.Errorf("change EndpointSlice %s: %w", p.service(), err)
	}
	return nil
}

// slice returns an EndpointSlice with the endpoint of a round, which becomes the present one.
func (p *probe) slice(round int) *discoveryv1.EndpointSlice {
	port, protocol := int32(probePort), corev1.ProtocolTCP
	address := netip.AddrFrom4([4]byte{192, 0, 2, byte(round + 1)})
	if p.family == corev1.IPv6Protocol {
		address = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(round + 1)})
	}
	p.endpoint = netip.AddrPortFrom(address, probePort)
	ready := true
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressType(p.family),
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// remove removes all objects. The rules on the nodes do not depend on the namespace: the Service is
// removed first.
func (p *probe) remove(ctx context.Context) error {
	return p.Remove(ctx, p.Path(discovery, "endpointslices")+"/"+probeName, p.Path(core, "services")+"/"+probeName)
}

// rights are the permissions that a measurement needs beside the ones of status.
var rights = []kubectl.Right{
	{Verb: "create", Resource: "namespaces"}, {Verb: "list", Resource: "namespaces"}, {Verb: "delete", Resource: "namespaces"},
	{Verb: "create", Resource: "services"}, {Verb: "delete", Resource: "services"},
	{Verb: "create", Group: "discovery.k8s.io", Resource: "endpointslices"}, {Verb: "patch", Group: "discovery.k8s.io", Resource: "endpointslices"},
	{Verb: "delete", Group: "discovery.k8s.io", Resource: "endpointslices"},
}
