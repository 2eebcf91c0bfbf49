package model

import (
	"net/netip"
	"slices"
	"testing"
)

func host(address string, ready, serving, terminating bool) Host {
	return Host{Address: netip.MustParseAddr(address), Ready: ready, Serving: serving, Terminating: terminating}
}

func TestEndpoints(t *testing.T) {
	http := PortName{ServiceName{"default", "web"}, "http", TCP}
	slice := func(f Family, port EndpointPort, hosts ...Host) *EndpointSlice {
		return &EndpointSlice{Family: f, Ports: []EndpointPort{port}, Hosts: hosts}
	}
	p8080 := EndpointPort{"http", TCP, 8080}
	ready := host("10.0.0.1", true, true, false)
	for _, c := range []struct {
		name   string
		slices []*EndpointSlice
		want   []string
	}{
		{"2.17 union over slices", []*EndpointSlice{
			slice(IPv4, p8080, host("10.0.0.2", true, true, false)), slice(IPv4, p8080, ready)},
			[]string{"10.0.0.1:8080", "10.0.0.2:8080"}},
		{"2.10 one address with two ports", []*EndpointSlice{
			slice(IPv4, p8080, ready), slice(IPv4, EndpointPort{"http", TCP, 80}, ready)},
			[]string{"10.0.0.1:80", "10.0.0.1:8080"}},
		{"2.6 other name", []*EndpointSlice{slice(IPv4, EndpointPort{"https", TCP, 8080}, ready)}, nil},
		{"2.6 other protocol", []*EndpointSlice{slice(IPv4, EndpointPort{"http", UDP, 8080}, ready)}, nil},
		{"2.3 other family", []*EndpointSlice{slice(IPv6, p8080, host("fd00::1", true, true, false))}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range Endpoints(http, IPv4, c.slices) {
				got = append(got, e.Address().String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("endpoints are %v, want %v", got, c.want)
			}
		})
	}
}

// TestDuplicateEndpoints is 2.18: which record of one address counts,
// in every order.
func TestDuplicateEndpoints(t *testing.T) {
	records := []Host{
		host("10.0.0.1", false, true, true),
		host("10.0.0.1", true, true, false),
		host("10.0.0.1", false, false, true),
	}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		s := &EndpointSlice{Family: IPv4, Ports: []EndpointPort{{"", TCP, 80}}}
		for _, i := range order {
			s.Hosts = append(s.Hosts, records[i])
		}
		got := Endpoints(PortName{Protocol: TCP}, IPv4, []*EndpointSlice{s})
		if len(got) != 1 || !got[0].Host.Ready {
			t.Errorf("order %v: %d endpoints, the first ready: %t", order, len(got), got[0].Host.Ready)
		}
	}
}

// TestCiliumDefault: 3.50. Endpoints without a weight weigh 100 beside slices with Cilium's
// annotation, also those of ranges of ports, and 1 otherwise.
func TestCiliumDefault(t *testing.T) {
	weighted := func(cilium bool) []*EndpointSlice {
		one := Host{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Weight: 50}
		other := Host{Address: netip.MustParseAddr("10.0.0.2"), Ready: true}
		ports := []EndpointPort{{"http", TCP, 80}}
		return []*EndpointSlice{
			{Family: IPv4, Ports: ports, Hosts: []Host{one}, CiliumWeight: cilium}, {Family: IPv4, Ports: ports, Hosts: []Host{other}},
		}
	}
	for _, port := range []string{"http", "10-20/tcp"} {
		for cilium, want := range map[bool]int{true: 100, false: 1} {
			all := Endpoints(PortName{Port: port, Protocol: TCP}, IPv4, weighted(cilium))
			if len(all) != 2 || all[0].Weight() != 50 || all[1].Weight() != want {
				t.Errorf("%s, Cilium's annotation %t: %+v, want weights 50 and %d", port, cilium, all, want)
			}
		}
	}
}
