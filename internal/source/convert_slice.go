package source

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ConvertEndpointSlice converts an EndpointSlice. The result is nil where the
// slice is not used: of a headless Service (2.1), of no Service (2.2), or of
// an address type other than IPv4 and IPv6 (2.3). It never changes s (2.25).
func ConvertEndpointSlice(s *discoveryv1.EndpointSlice) (*model.EndpointSlice, []*FieldError) {
	c := sliceConverter{slice: s}
	named := c.objectName(&s.ObjectMeta)
	if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
		return nil, c.findings
	}
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		c.warn("metadata.labels["+discoveryv1.LabelServiceName+"]", nil,
			"missing: the slice belongs to no Service and is not used; label it with the name of its Service")
		return nil, c.findings
	}
	family, ok := c.family()
	if !ok || !named {
		return nil, c.findings
	}
	out := &model.EndpointSlice{
		Namespace: namespace(&s.ObjectMeta),
		Name:      s.Name,
		Service:   service,
		Family:    family,
		Ports:     c.ports(),
		Hosts:     c.hosts(family),
	}
	c.unknownAnnotations(&s.ObjectMeta, annotationWeight)
	c.weigh(&s.ObjectMeta, out)
	return out, c.findings
}

type sliceConverter struct {
	findings
	slice *discoveryv1.EndpointSlice
	named map[string]int // the first port of each name
}

func (c *sliceConverter) family() (model.Family, bool) {
	text := string(c.slice.AddressType)
	f, ok := parseFamily(text)
	switch {
	case ok:
	case text == string(discoveryv1.AddressTypeFQDN):
		c.warn("addressType", text, `is not proxied: the slice is not used; give addresses in a slice of type "IPv4" or "IPv6"`)
	case text == "":
		c.add("addressType", nil, "missing: "+oneOf("IPv4", "IPv6"))
	default:
		c.add("addressType", text, "is unknown: "+oneOf("IPv4", "IPv6"))
	}
	return f, ok
}

// ports converts the ports that have a name and a number (2.7, 2.8).
func (c *sliceConverter) ports() []model.EndpointPort {
	out := make([]model.EndpointPort, 0, len(c.slice.Ports))
	c.named = firstNamed(c.slice.Ports)
	for i := range c.slice.Ports {
		before := len(c.findings)
		p := c.port(i)
		if len(c.findings) == before {
			out = append(out, p)
		}
	}
	return out
}

func (c *sliceConverter) port(i int) model.EndpointPort {
	in := &c.slice.Ports[i]
	field := func(name string) string { return fmt.Sprintf("ports[%d].%s", i, name) }
	var p model.EndpointPort
	if in.Name == nil {
		c.warn(field("name"), nil, `missing: the port is not used; name it as in the Service, or ""`)
	} else {
		p.Name = *in.Name
		c.checkPortName(i, p.Name)
	}
	switch {
	case in.Port == nil:
		c.warn(field("port"), nil, "missing: the port is not used; give it a number")
	case portProblem(*in.Port) != "":
		c.add(field("port"), *in.Port, portProblem(*in.Port))
	default:
		p.Port = uint16(*in.Port)
	}
	protocol := corev1.ProtocolTCP
	if in.Protocol != nil {
		protocol = *in.Protocol
	}
	var problem string
	if p.Protocol, problem = parseProtocol(protocol); problem != "" {
		c.add(field("protocol"), string(protocol), problem)
	}
	return p
}

// checkPortName refuses a name that cannot be used, or that an earlier port has.
func (c *sliceConverter) checkPortName(i int, name string) {
	field := fmt.Sprintf("ports[%d].name", i)
	if problem := portNameProblem(name); problem != "" {
		c.add(field, name, problem)
	} else if j := c.named[name]; j < i {
		c.add(field, name, fmt.Sprintf("is also used by ports[%d]: use another one", j))
	}
}

// firstNamed returns the first port of each name.
func firstNamed(ports []discoveryv1.EndpointPort) map[string]int {
	out := make(map[string]int, len(ports))
	for i := range ports {
		if name := ports[i].Name; name != nil {
			if _, known := out[*name]; !known {
				out[*name] = i
			}
		}
	}
	return out
}

func (c *sliceConverter) hosts(f model.Family) []model.Host {
	out := make([]model.Host, 0, len(c.slice.Endpoints))
	for i := range c.slice.Endpoints {
		if h, ok := c.host(i, f); ok {
			out = append(out, h)
		}
	}
	return out
}

// host converts one endpoint. Only its first address counts (2.11).
func (c *sliceConverter) host(i int, f model.Family) (model.Host, bool) {
	in := &c.slice.Endpoints[i]
	if len(in.Addresses) == 0 {
		c.add(fmt.Sprintf("endpoints[%d].addresses", i), nil, "missing: an endpoint needs an address")
		return model.Host{}, false
	}
	a, problem := parseEndpoint(in.Addresses[0], f)
	if problem != "" {
		c.add(fmt.Sprintf("endpoints[%d].addresses[0]", i), in.Addresses[0], problem)
		return model.Host{}, false
	}
	if len(in.Addresses) > 1 {
		c.warn(fmt.Sprintf("endpoints[%d].addresses[1]", i), in.Addresses[1],
			"is not used: only the first address of an endpoint counts; give each address an endpoint of its own")
	}
	h := model.Host{
		Address:     a,
		Ready:       valueOr(in.Conditions.Ready, true),
		Serving:     valueOr(in.Conditions.Serving, true),
		Terminating: valueOr(in.Conditions.Terminating, false),
		Node:        valueOr(in.NodeName, ""),
	}
	if in.Hints != nil {
		for _, z := range in.Hints.ForZones {
			h.ForZones = append(h.ForZones, z.Name)
		}
		for _, n := range in.Hints.ForNodes {
			h.ForNodes = append(h.ForNodes, n.Name)
		}
	}
	return h, true
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
