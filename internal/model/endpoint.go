package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// EndpointSlice is a part of the endpoints of a Service, all of one family.
type EndpointSlice struct {
	Namespace, Name string
	Service         string // of the same namespace (2.2)
	Family          Family
	Ports           []EndpointPort
	Hosts           []Host
}

// EndpointPort is a port that every host of a slice serves.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Host is one entry of a slice's endpoints: an address with its conditions.
type Host struct {
	Address     netip.Addr
	Ready       bool
	Serving     bool
	Terminating bool
	Node        string   // node name; empty: unknown (2.15)
	ForZones    []string // zone hints (2.16)
	ForNodes    []string // node hints (2.16)
	// Weight is the share of new connections relative to the other endpoints;
	// zero means that none is given, which is 1.
	Weight uint16
	// Drain keeps new connections away: the weight is given as 0.
	Drain bool
}

// Endpoint is what answers for a service port: a host and its port there.
type Endpoint struct {
	Address netip.AddrPort
	Host    *Host
}

// Endpoints returns the endpoints of one service port in one family: the union
// over the slices of its Service, keyed by address and port (2.17), sorted.
// Of several records for one key the best is used: not terminating before
// terminating (2.18), then ready and serving ones, then by content, so that
// neither the order of slices nor that of hosts matters.
func Endpoints(port PortName, f Family, ss []*EndpointSlice) []Endpoint {
	var all []Endpoint
	for _, s := range ss {
		if s.Family != f {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != port.Port || p.Protocol != port.Protocol {
				continue
			}
			for i := range s.Hosts {
				h := &s.Hosts[i]
				all = append(all, Endpoint{netip.AddrPortFrom(h.Address, p.Port), h})
			}
		}
	}
	slices.SortFunc(all, compareEndpoints)
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Address == b.Address })
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(
		a.Address.Compare(b.Address),
		compareBool(a.Host.Terminating, b.Host.Terminating),
		compareBool(b.Host.Ready, a.Host.Ready),
		compareBool(b.Host.Serving, a.Host.Serving),
		cmp.Compare(a.Host.Node, b.Host.Node),
		slices.Compare(a.Host.ForZones, b.Host.ForZones),
		slices.Compare(a.Host.ForNodes, b.Host.ForNodes),
		compareBool(a.Host.Drain, b.Host.Drain),
		cmp.Compare(b.Host.Weight, a.Host.Weight),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
