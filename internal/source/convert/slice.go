package convert

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// EndpointSlice converts an EndpointSlice. The result is nil where the slice is not used: of a headless Service
// (2.1), of no Service (2.2), or of an address type other than IPv4 and IPv6 (2.3). It never changes s (2.25).
func EndpointSlice(s *discoveryv1.EndpointSlice) (*model.EndpointSlice, []*manifest.FieldError) {
	return convertSlice(s, false)
}

// RelayedSlice is [EndpointSlice] for a Service whose connections are relayed: its endpoints may
// have loopback addresses.
func RelayedSlice(s *discoveryv1.EndpointSlice) (*model.EndpointSlice, []*manifest.FieldError) {
	return convertSlice(s, true)
}

func convertSlice(s *discoveryv1.EndpointSlice, relayed bool) (*model.EndpointSlice, []*manifest.FieldError) {
	c := sliceConverter{slice: s, relayed: relayed}
	named := c.ObjectName(&s.ObjectMeta)
	if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
		return nil, c.All()
	}
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		c.Warn("metadata.labels["+discoveryv1.LabelServiceName+"]", nil,
			"missing: the slice belongs to no Service and is not used; label it with the name of its Service")
		return nil, c.All()
	}
	family, ok := c.convertFamily()
	if !ok || !named {
		return nil, c.All()
	}
	out := &model.EndpointSlice{
		Namespace: namespaceOf(&s.ObjectMeta),
		Name:      s.Name,
		Service:   service,
		Family:    family,
		Ports:     c.convertPorts(),
		Hosts:     c.convertHosts(family),
	}
	c.setNumbers(&s.ObjectMeta, out)
	return out, c.All()
}

type sliceConverter struct {
	Findings
	slice   *discoveryv1.EndpointSlice
	relayed bool
}

func (c *sliceConverter) convertFamily() (model.Family, bool) {
	text := string(c.slice.AddressType)
	f, ok := families[corev1.IPFamily(text)]
	switch {
	case ok:
	case text == string(discoveryv1.AddressTypeFQDN):
		c.Warn("addressType", text, `is not proxied: the slice is not used; give addresses in a slice of type "IPv4" or "IPv6"`)
	case text == "":
		c.Add("addressType", nil, "missing: "+suggest.OneOf("IPv4", "IPv6"))
	default:
		c.Word(manifest.FieldPath{Path: "addressType"}, text, "IPv4", "IPv6")
	}
	return f, ok
}

// convertPorts converts the ports that have a name and a number (2.7, 2.8).
func (c *sliceConverter) convertPorts() []model.EndpointPort {
	first := make(map[string]int, len(c.slice.Ports)) // port of each name
	return usablePorts(&c.Findings, len(c.slice.Ports), func(i int) model.EndpointPort {
		in := &c.slice.Ports[i]
		at := manifest.EntryOf("ports", i)
		p := c.convertPort(at, ptr.Deref(in.Name, ""), ptr.Deref(in.Protocol, ""), ptr.Deref(in.Port, 1), false)
		j, taken := first[p.Name]
		switch {
		case in.Name == nil:
			c.WarnAt(at.Of("name"), nil, `missing: the port is not used; name it as in the Service, or ""`)
		case !taken:
			first[p.Name] = i
		default:
			c.AddAt(at.Of("name"), p.Name, fmt.Sprintf("is also used by ports[%d]: use another one", j))
		}
		if in.Port == nil {
			c.WarnAt(at.Of("port"), nil, "missing: the port is not used; give it a number")
		}
		return p
	})
}

func (c *sliceConverter) convertHosts(f model.Family) []model.Host {
	out := make([]model.Host, 0, len(c.slice.Endpoints))
	for i := range c.slice.Endpoints {
		if h, ok := c.convertHost(i, f); ok {
			out = append(out, h)
		}
	}
	return out
}

// convertHost converts one endpoint. Only its first address counts (2.11).
func (c *sliceConverter) convertHost(i int, f model.Family) (model.Host, bool) {
	in, at := &c.slice.Endpoints[i], manifest.EntryOf("endpoints", i)
	if len(in.Addresses) == 0 {
		c.AddAt(at.Of("addresses"), nil, "missing: an endpoint needs an address")
		return model.Host{}, false
	}
	a, problem := ParseEndpoint(in.Addresses[0])
	if c.relayed && a.IsLoopback() && a.Zone() == "" {
		problem = ""
	}
	if problem == "" && model.FamilyOf(a) != f {
		problem = "is not an " + f.String() + " address, as the slice's addressType says"
	}
	if problem != "" {
		c.AddAt(at.Of("addresses[0]"), in.Addresses[0], problem)
		return model.Host{}, false
	}
	if len(in.Addresses) > 1 {
		c.WarnAt(at.Of("addresses[1]"), in.Addresses[1],
			"is not used: only the first address of an endpoint counts; give each address an endpoint of its own")
	}
	h := model.Host{
		Address:     a,
		Ready:       ptr.Deref(in.Conditions.Ready, true),
		Serving:     ptr.Deref(in.Conditions.Serving, true),
		Terminating: ptr.Deref(in.Conditions.Terminating, false),
	}
	var forZones, forNodes []string
	if in.Hints != nil {
		for _, z := range in.Hints.ForZones {
			forZones = append(forZones, z.Name)
		}
		for _, n := range in.Hints.ForNodes {
			forNodes = append(forNodes, n.Name)
		}
	}
	h.Place = model.NewPlace(ptr.Deref(in.NodeName, ""), ptr.Deref(in.Zone, ""), forZones, forNodes)
	return h, true
}

// Endpoints converts an Endpoints object, for files: the API server offers the same as slices, and a source that
// reads those must not read both (2.5). Each subset becomes one slice for each family that it has addresses of.
//
//lint:ignore SA1019 files may still hold Endpoints
func Endpoints(e *corev1.Endpoints) ([]*model.EndpointSlice, []*manifest.FieldError) {
	var c Findings
	if !c.ObjectName(&e.ObjectMeta) {
		return nil, c.All()
	}
	var out []*model.EndpointSlice
	for i := range e.Subsets {
		path, in := fmt.Sprintf("subsets[%d].ports", i), e.Subsets[i].Ports
		ports := usablePorts(&c, len(in), func(j int) model.EndpointPort {
			return c.convertPort(manifest.EntryOf(path, j), in[j].Name, in[j].Protocol, in[j].Port, len(in) > 1)
		})
		hosts := append(
			c.convertHosts(fmt.Sprintf("subsets[%d].addresses", i), e.Subsets[i].Addresses, true),
			c.convertHosts(fmt.Sprintf("subsets[%d].notReadyAddresses", i), e.Subsets[i].NotReadyAddresses, false)...)
		for _, f := range model.Families {
			s := &model.EndpointSlice{
				Namespace: namespaceOf(&e.ObjectMeta),
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
	c.setNumbers(&e.ObjectMeta, out...)
	return out, c.All()
}

func (f *Findings) convertHosts(field string, in []corev1.EndpointAddress, ready bool) []model.Host {
	out := make([]model.Host, 0, len(in))
	for i, e := range in {
		out = appendParsed(f, out, manifest.EntryOf(field, i).Of("ip"), e.IP, func(ip string) (model.Host, string) {
			a, problem := ParseEndpoint(ip)
			return model.Host{Address: a, Ready: ready, Serving: ready, Place: model.OnNode(ptr.Deref(e.NodeName, ""))}, problem
		})
	}
	return out
}
