package model

import (
	"net/netip"
	"testing"
)

// TestRelay: 4.97. A relayed Service has its usable servers, but none that is a relayed frontend
// itself; others are not relayed.
func TestRelay(t *testing.T) {
	vip := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }
	s := &Snapshot{}
	add := func(name string, use RelayUse, at netip.Addr, servers ...netip.Addr) {
		s.Services = append(s.Services, &Service{
			Name: ServiceName{"default", name}, NoClusterIP: true, External: &External{LoadBalancerIPs: []netip.Addr{at}},
			Ports: []ServicePort{{Protocol: TCP, Port: 80}}, Extras: &Extras{Relay: use},
		})
		slice := &EndpointSlice{Namespace: "default", Name: name, Service: name, Family: IPv4, Ports: []EndpointPort{{Protocol: TCP, Port: 80}}}
		for _, a := range servers {
			slice.Hosts = append(slice.Hosts, Host{Address: a, Ready: true, Serving: true})
		}
		s.Slices = append(s.Slices, slice)
	}
	local, remote := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.1.2")
	add("one", ProxyV2Relay, vip(1), vip(2), local, remote)
	add("other", PlainRelay, vip(2), vip(1))
	add("plain", NoRelay, vip(3), remote)
	add("through", PlainRelay, vip(4), vip(3))
	add("empty", PlainRelay, vip(5))
	r := s.Route(Config{NodeName: "node", Families: []Family{IPv4}})
	for n, want := range map[byte][]netip.Addr{1: {remote, local}, 2: {}, 4: {vip(3)}, 5: {}} {
		got, ok := r.Relay(Frontend{Address: vip(n), Protocol: TCP, Port: 80})
		if !ok || len(got.Servers) != len(want) {
			t.Errorf("%d: %v, %v, want %v", n, got, ok, want)
			continue
		}
		for i, a := range want {
			if got.Servers[i].Host.Address != a {
				t.Errorf("%d: %v, want %v", n, got.Servers[i].Host.Address, a)
			}
		}
		if n == 1 && (got.Use != ProxyV2Relay || got.Scheduler != RoundRobin || got.Service.Name != "one") {
			t.Errorf("%v", got)
		}
	}
	for _, at := range []netip.Addr{vip(3), vip(9)} {
		if got, ok := r.Relay(Frontend{Address: at, Protocol: TCP, Port: 80}); ok {
			t.Errorf("%s: %v", at, got)
		}
	}
}
