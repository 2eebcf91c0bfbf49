package model

import (
	"fmt"
	"net/netip"
	"testing"
)

// manyPorts is a Service of n ports whose one slice has n ports and some hosts.
func manyPorts(n, hosts int) ServiceState {
	s := &Service{
		Name: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		ExternalPolicy: PolicyLocal, HealthCheckNodePort: 32000,
	}
	slice := &EndpointSlice{Namespace: "default", Name: "web-1", Service: "web", Family: IPv4}
	for i := range n {
		name := fmt.Sprintf("port-%d", i)
		s.Ports = append(s.Ports, ServicePort{Name: name, Protocol: TCP, Port: uint16(i + 1)})
		slice.Ports = append(slice.Ports, EndpointPort{name, TCP, uint16(i + 1)})
	}
	slice.Hosts = manyHosts(0, 1, hosts)
	return ServiceState{s, []*EndpointSlice{slice}}
}

// manyHosts returns n hosts, of which each is so many addresses after the last.
func manyHosts(first, distance, n int) []Host {
	out := make([]Host, 0, n)
	for i := first; len(out) < n; i += distance {
		out = append(out, Host{
			Address: netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8), byte(i)}), Ready: true, Serving: true, Place: OnNode(fmt.Sprintf("node-%d", i%1000)),
		})
	}
	return out
}

// manySlices is a Service of two ports with that many slices of 1,000 hosts
// each, whose addresses are mixed.
func manySlices(n int) ServiceState {
	out := manyPorts(2, 0)
	ports := out.Slices[0].Ports
	out.Slices = nil
	for i := range n {
		out.Slices = append(out.Slices, &EndpointSlice{
			Namespace: "default", Name: fmt.Sprintf("web-%d", i), Service: "web", Family: IPv4, Ports: ports, Hosts: manyHosts(i, n, 1000),
		})
	}
	return out
}

// BenchmarkLargeService has the cost of one event at the sizes that an API
// server lets through: how the time grows with the size is what matters.
func BenchmarkLargeService(b *testing.B) {
	run := func(name string, state ServiceState) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := NewRouter()
			r.Configure(Config{NodeName: "node-1"}, []*Node{{Name: "node-1"}}, nil)
			for b.Loop() {
				r.SetServices(map[ServiceName]ServiceState{state.Service.Name: state})
			}
		})
	}
	for _, n := range []int{1000, 5000, 15_000, 40_000} {
		run(fmt.Sprintf("ports-%d", n), manyPorts(n, 1))
	}
	for _, n := range []int{1, 10, 100} {
		run(fmt.Sprintf("slices-%d", n), manySlices(n))
	}
}

// BenchmarkContestedFrontend has a start, and one event, where all Services claim
// the same address and port.
func BenchmarkContestedFrontend(b *testing.B) {
	for _, n := range []int{100, 1000, 4000} {
		states := make(map[ServiceName]ServiceState)
		one := make(map[ServiceName]ServiceState)
		for i := range n {
			s := &Service{
				Name: ServiceName{"default", fmt.Sprintf("service-%d", i)}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
				External: &External{ExternalIPs: []netip.Addr{netip.MustParseAddr("203.0.113.1")}}, Ports: []ServicePort{{Port: 80, Protocol: TCP}},
			}
			states[s.Name] = ServiceState{Service: s}
			if i == n/2 {
				one[s.Name] = states[s.Name]
			}
		}
		b.Run(fmt.Sprintf("start-%d", n), func(b *testing.B) {
			for b.Loop() {
				NewRouter().SetServices(states)
			}
		})
		r := NewRouter()
		r.SetServices(states)
		b.Run(fmt.Sprintf("event-%d", n), func(b *testing.B) {
			for b.Loop() {
				r.SetServices(one)
			}
		})
	}
}
