package source

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ConvertEndpoints converts an Endpoints object, for files: the API server
// offers the same as slices, and a source that reads those must not read both
// (2.5). Each subset becomes one slice for each family that it has addresses
// of.
//
//lint:ignore SA1019 files may still hold Endpoints
func ConvertEndpoints(e *corev1.Endpoints) ([]*model.EndpointSlice, []*FieldError) {
	var c endpointsConverter
	if !c.objectName(&e.ObjectMeta) {
		return nil, c.findings
	}
	var out []*model.EndpointSlice
	for i := range e.Subsets {
		ports := c.ports(i, e.Subsets[i].Ports)
		hosts := append(
			c.hosts(fmt.Sprintf("subsets[%d].addresses", i), e.Subsets[i].Addresses, true),
			c.hosts(fmt.Sprintf("subsets[%d].notReadyAddresses", i), e.Subsets[i].NotReadyAddresses, false)...)
		for _, f := range model.Families {
			s := &model.EndpointSlice{
				Namespace: namespace(&e.ObjectMeta),
				// No EndpointSlice can have this name.
				Name:    fmt.Sprintf("%s/%d/%s", e.Name, i, f),
				Service: e.Name,
				Family:  f,
				Ports:   ports,
				Hosts:   slices.DeleteFunc(slices.Clone(hosts), func(h model.Host) bool { return model.FamilyOf(h.Address) != f }),
			}
			if len(s.Hosts) > 0 {
				out = append(out, s)
			}
		}
	}
	c.unknownAnnotations(&e.ObjectMeta, annotationWeight)
	c.weigh(&e.ObjectMeta, out...)
	return out, c.findings
}

type endpointsConverter struct{ findings }

func (c *endpointsConverter) ports(subset int, in []corev1.EndpointPort) []model.EndpointPort {
	return usablePorts(&c.findings, len(in), func(i int) model.EndpointPort {
		field := func(name string) string { return fmt.Sprintf("subsets[%d].ports[%d].%s", subset, i, name) }
		return c.port(field, in[i].Name, in[i].Protocol, in[i].Port, len(in) > 1)
	})
}

func (c *endpointsConverter) hosts(field string, in []corev1.EndpointAddress, ready bool) []model.Host {
	out := make([]model.Host, 0, len(in))
	for i, e := range in {
		out = appendParsed(&c.findings, out, fmt.Sprintf("%s[%d].ip", field, i), e.IP, func(ip string) (model.Host, string) {
			a, problem := parseEndpoint(ip)
			return model.Host{Address: a, Ready: ready, Serving: ready, Node: valueOr(e.NodeName, "")}, problem
		})
	}
	return out
}
