package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// EndpointSlice holds some of the endpoints of a Service, all of one family.
type EndpointSlice struct {
	Namespace, Name string
	Service         string // of the same namespace (2.2)
	Family          Family
	Ports           []EndpointPort
	Hosts           []Host
	// CiliumWeight reports that Cilium's annotation gives the hosts their weight. Then others of
	// the same service port without one weigh [CiliumDefault].
	CiliumWeight bool
}

// CiliumDefault is the weight of an endpoint in Cilium whose slice has no annotation:
// loadbalancer.DefaultBackendWeight there.
const CiliumDefault = 100

func (s *EndpointSlice) ServiceName() ServiceName { return ServiceName{s.Namespace, s.Service} }

// EndpointPort is a port that every host of a slice serves.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Host is one entry of a slice's endpoints: an address with its conditions. There are
// more of them than of anything else.
type Host struct {
	Address     netip.Addr
	Place       Place
	Ready       bool
	Serving     bool
	Terminating bool
	// Drain means no new connections: the weight is given as 0, or the operator drains the
	// host on this machine. It keeps its weight then, which tells the two apart.
	Drain    bool
	Failing  bool   // its health check fails: no new connections while another endpoint is usable
	Priority uint8  // 0 comes first; others stand by while an earlier one has a usable endpoint
	Weight   uint16 // share of new connections relative to other endpoints; zero: the default, 1 or [CiliumDefault]
}

func (h *Host) DrainByOperator() {
	if !h.Drain {
		h.Drain, h.Weight = true, max(1, h.Weight)
	}
}

// EndDrainByOperator ends what DrainByOperator began. The weight is the default if it was.
func (h *Host) EndDrainByOperator() {
	if h.DrainedByOperator() {
		h.Drain = false
	}
}

// DrainedByOperator reports whether the operator of this machine drains the host.
func (h *Host) DrainedByOperator() bool { return h.Drain && h.Weight > 0 }

// Endpoint is a host that serves a service port at a port of its own.
type Endpoint struct {
	Host *Host
	Port uint16
	// Share replaces the weight of the host where a zone floor decides (3.62); zero: it does not.
	Share uint32
	// Part is the current share of the weight, from 1 to [StartParts], while an endpoint of the
	// choice starts slowly; zero: none does.
	Part uint8
	// Default is the weight of a host that has none; zero: 1.
	Default uint8
}

// Weight returns the share of new connections relative to other endpoints of a choice.
func (e Endpoint) Weight() int { return e.Whole() * max(1, int(e.Part)) }

// Whole returns the weight without regard to slow starts.
func (e Endpoint) Whole() int { return cmp.Or(int(e.Share), e.HostWeight()) }

// HostWeight returns the weight that objects give the endpoint, which may be a default.
func (e Endpoint) HostWeight() int { return cmp.Or(int(e.Host.Weight), int(e.Default), 1) }

// Address returns where the endpoint answers.
func (e Endpoint) Address() netip.AddrPort { return netip.AddrPortFrom(e.Host.Address, e.Port) }

// EndpointText returns the address of one end of a connection, without a port if it has none, as endpoints that
// keep the one that the client dialled.
func EndpointText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

func (e Endpoint) sameAddress(o Endpoint) bool {
	return e.Port == o.Port && e.Host.Address == o.Host.Address
}

// Endpoints returns the endpoints of one service port in one family: the union over
// the slices of its Service, sorted, with one record for each address and port
// (2.17). A record that is not terminating is preferred (2.18), then a ready one,
// then a serving one, then one that passes its health check, then by content: the
// order of slices and hosts does not matter.
//
// Of a range of ports in the place of a service port, they are all hosts.
func Endpoints(port PortName, f Family, ss []*EndpointSlice) []Endpoint {
	if target, isRange := rangeTarget(port.Port); isRange {
		return withPort(hostsOf(ss, f), target)
	}
	return newSlicePorts(nil, ss).endpointsOf(port.Port, port.Protocol, f)
}

// slicePorts are the ports of all slices of a Service, sorted by family, name and
// protocol, for a binary search: there may be tens of thousands.
type slicePorts []slicePort

type slicePort struct {
	slice *EndpointSlice
	port  *EndpointPort
}

// newSlicePorts returns the ports of these slices, in the memory of all if that suffices.
func newSlicePorts(all slicePorts, ss []*EndpointSlice) slicePorts {
	n := 0
	for _, s := range ss {
		n += len(s.Ports)
	}
	all = slices.Grow(all[:0], n)
	for _, s := range ss {
		for i := range s.Ports {
			all = append(all, slicePort{s, &s.Ports[i]})
		}
	}
	slices.SortFunc(all, func(a, b slicePort) int { return a.compare(b.slice.Family, b.port.Name, b.port.Protocol) })
	return all
}

func (p slicePort) compare(f Family, name string, protocol Protocol) int {
	return cmp.Or(cmp.Compare(p.slice.Family, f), cmp.Compare(p.port.Name, name), cmp.Compare(p.port.Protocol, protocol))
}

// endpointsOf is [Endpoints] for one of many service ports.
func (all slicePorts) endpointsOf(port string, protocol Protocol, f Family) []Endpoint {
	is := func(p slicePort) int { return p.compare(f, port, protocol) }
	first, _ := slices.BinarySearchFunc(all, struct{}{}, func(p slicePort, _ struct{}) int { return is(p) })
	all = all[first:]
	n := 0
	for n < len(all) && is(all[n]) == 0 {
		n++
	}
	total, weight := 0, uint8(0)
	for _, p := range all[:n] {
		total += len(p.slice.Hosts)
		weight = max(weight, p.slice.defaultWeight())
	}
	out := make([]Endpoint, 0, total)
	for _, p := range all[:n] {
		for i := range p.slice.Hosts {
			out = append(out, Endpoint{Host: &p.slice.Hosts[i], Port: p.port.Port, Default: weight})
		}
	}
	slices.SortFunc(out, compareEndpoints)
	return slices.CompactFunc(out, Endpoint.sameAddress)
}

func (s *EndpointSlice) defaultWeight() uint8 {
	if s.CiliumWeight {
		return CiliumDefault
	}
	return 0
}

func compareEndpoints(a, b Endpoint) int {
	if c := a.Host.Address.Compare(b.Host.Address); c != 0 { // the common case, and the rest is expensive
		return c
	}
	return cmp.Or(
		cmp.Compare(a.Port, b.Port),
		CompareBool(a.Host.Terminating, b.Host.Terminating),
		CompareBool(b.Host.Ready, a.Host.Ready),
		CompareBool(b.Host.Serving, a.Host.Serving),
		CompareBool(a.Host.Failing, b.Host.Failing),
		a.Host.Place.compare(b.Host.Place),
		CompareBool(a.Host.Drain, b.Host.Drain),
		cmp.Compare(b.HostWeight(), a.HostWeight()),
		cmp.Compare(b.Host.Weight, a.Host.Weight), // given, or the same by default
		cmp.Compare(a.Host.Priority, b.Host.Priority),
	)
}

// CompareBool orders false before true.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
