package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// 4.37, 4.39: the Service whose NodePort an address of another one hides is named
// for as long as both are there and the node has the address.
func TestNodePortHiddenByAddress(t *testing.T) {
	shared := netip.MustParseAddr("198.51.100.1")
	config := func(addresses ...netip.Addr) Config {
		return Config{NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, InterfaceAddresses: addresses}
	}
	state := func(name string, port ServicePort, external ...netip.Addr) ServiceState {
		return ServiceState{Service: &Service{Name: ServiceName{"default", name}, External: &External{ExternalIPs: external},
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []ServicePort{port}}}
	}
	set := func(name string, s ServiceState) func(*Router) {
		return func(r *Router) { r.SetServices(map[ServiceName]ServiceState{{"default", name}: s}) }
	}
	move := func(addresses ...netip.Addr) func(*Router) {
		return func(r *Router) { r.Configure(config(addresses...), nil, nil) }
	}
	port := ServicePort{Name: "http", Protocol: TCP, Port: 81, NodePort: 30080}
	web := set("web", state("web", port))
	other := set("other", state("other", ServicePort{Protocol: TCP, Port: 30080}, shared))
	r := NewRouter()
	r.Configure(config(shared), nil, nil)
	for _, step := range []struct {
		name   string
		do     func(*Router)
		hidden bool
	}{
		{"the NodePort alone", web, false},
		{"the address of the other Service comes", other, true},
		{"the NodePort goes", set("web", ServiceState{}), false},
		{"the NodePort comes back", web, true},
		{"the node loses the address", move(netip.MustParseAddr("198.51.100.2")), false},
		{"the node gets it again", move(netip.MustParseAddr("198.51.100.2"), shared), true},
		{"the node has no address left", move(netip.MustParseAddr("192.0.2.1")), false},
		{"the node has it alone", move(shared), true},
		{"the Service has both", set("other", ServiceState{}), false},
		{"", set("web", state("web", ServicePort{Name: "http", Protocol: TCP, Port: 30080, NodePort: 30080}, shared)), false},
		{"both are two Services again", web, false},
		{"", other, true},
		{"another protocol", set("other", state("other", ServicePort{Protocol: UDP, Port: 30080}, shared)), false},
	} {
		step.do(r)
		var hidden bool
		for _, n := range r.Notices() {
			hidden = hidden || n == Notice{Object{"Service", "default", "web"}, Conflict,
				`tcp 198.51.100.1:30080 (NodePort of port "http") is served by Service default/other, not by this one`}
		}
		if hidden != step.hidden {
			t.Errorf("%s: reported %t, want %t: %v", step.name, hidden, step.hidden, r.Notices())
		}
	}
}

// 4.37, 4.40: an address of a Service without endpoints leaves its port to a NodePort with
// endpoints, for as long as both are so and the node has the address. The Service is told.
func TestAddressYieldsToNodePort(t *testing.T) {
	shared := netip.MustParseAddr("198.51.100.1")
	state := func(name string, hosts []Host, port ServicePort, external ...netip.Addr) ServiceState {
		return ServiceState{
			Service: &Service{Name: ServiceName{"default", name}, External: &External{ExternalIPs: external}, Ports: []ServicePort{port},
				ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, name[0]})}},
			Slices: []*EndpointSlice{{Namespace: "default", Service: name, Family: IPv4, Ports: []EndpointPort{{"http", TCP, 8080}}, Hosts: hosts}},
		}
	}
	hosts := []Host{{Address: netip.MustParseAddr("10.128.0.1"), Ready: true}}
	web := func(hosts []Host) ServiceState {
		return state("web", hosts, ServicePort{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080})
	}
	other := func(name string, hosts []Host) ServiceState {
		return state(name, hosts, ServicePort{Name: "http", Protocol: TCP, Port: 30080}, shared)
	}
	r := NewRouter()
	move := func(a netip.Addr) {
		r.Configure(Config{NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, InterfaceAddresses: []netip.Addr{a}}, nil, nil)
	}
	set := func(s ServiceState) { r.SetServices(map[ServiceName]ServiceState{s.Service.Name: s}) }
	gone := func(name string) { r.SetServices(map[ServiceName]ServiceState{{"default", name}: {}}) }
	for _, step := range []struct {
		name         string
		do           func()
		serves, told string // the Service that serves, and those with a notice
	}{
		{"the address alone", func() { move(shared); set(other("other", nil)) }, "other", ""},
		{"a NodePort without endpoints", func() { set(web(nil)) }, "other", "web"},
		{"with endpoints", func() { set(web(hosts)) }, "web", "other"},
		{"both have some", func() { set(other("other", hosts)) }, "other", "web"},
		{"the address has none again", func() { set(other("other", nil)) }, "web", "other"},
		{"a second Service asks for the address", func() { set(other("third", nil)) }, "web", "other third"},
		{"and gets endpoints", func() { set(other("third", hosts)) }, "third", "other web"},
		{"the first one goes", func() { gone("other") }, "third", "web"},
		{"the second one loses them", func() { set(other("third", nil)) }, "web", "third"},
		{"the node loses the address", func() { move(netip.MustParseAddr("198.51.100.2")) }, "third", ""},
		{"the node gets it again", func() { move(shared) }, "web", "third"},
		{"the NodePort goes", func() { gone("web") }, "third", ""},
	} {
		step.do()
		var told []string
		for _, n := range r.Notices() {
			told = append(told, n.Object.Name)
		}
		slices.Sort(told)
		got := r.Serves(Frontend{Address: shared, Protocol: TCP, Port: 30080})
		if got == nil || got.Service.Name.Name != step.serves || strings.Join(told, " ") != step.told {
			t.Errorf("%s: %v serves, told are %q; want %s, %q: %v", step.name, got, told, step.serves, step.told, r.Notices())
		}
	}
}
