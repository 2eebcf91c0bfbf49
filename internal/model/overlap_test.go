package model

import (
	"net/netip"
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
