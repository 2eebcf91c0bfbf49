package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// hosts reads "10.0.0.1=ready@node-1 ..."; the states are ready, serving (and
// terminating) and dead.
func hosts(text string) []Host {
	var out []Host
	for _, word := range strings.Fields(text) {
		address, rest, _ := strings.Cut(word, "=")
		state, node, _ := strings.Cut(rest, "@")
		out = append(out, Host{
			Address: netip.MustParseAddr(address), Place: OnNode(node),
			Ready: state == "ready", Serving: state != "dead", Terminating: state == "serving",
		})
	}
	return out
}

// web is a dual-stack Service of two ports with a health check.
func web() *Service {
	return &Service{
		Name:       ServiceName{"default", "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")},
		Ports: []ServicePort{
			{Name: "http", Protocol: TCP, Port: 80}, {Name: "dns", Protocol: UDP, Port: 53},
		},
		ExternalPolicy: PolicyLocal, HealthCheckNodePort: 32000,
	}
}

func slice(text string, ports ...EndpointPort) *EndpointSlice {
	return &EndpointSlice{Namespace: "default", Name: "web-1", Service: "web", Family: IPv4, Ports: ports, Hosts: hosts(text)}
}

var (
	http  = EndpointPort{"http", TCP, 11}
	http2 = EndpointPort{"http", TCP, 12}
	dns   = EndpointPort{"dns", UDP, 53}
)

func resolve(s *Service, slices ...*EndpointSlice) *Routing {
	return Resolve(&Snapshot{Services: []*Service{s}, Slices: slices}, Config{NodeName: "node-1"})
}

// TestHealthChecks: 3.21, 10.15, 10.20, P25 to P27.
func TestHealthChecks(t *testing.T) {
	for _, c := range []struct {
		name   string
		slices []*EndpointSlice
		want   int
	}{
		{"nothing", nil, 0},
		{"local and remote", []*EndpointSlice{slice("10.0.0.1=ready@node-1 10.0.0.2=ready@node-2 10.0.0.3=ready", http)}, 1},
		{"one address, two ports", []*EndpointSlice{slice("10.0.0.1=ready@node-1", http, http2, dns)}, 1},
		{"two addresses of two ports", []*EndpointSlice{slice("10.0.0.1=ready@node-1", http), slice("10.0.0.2=ready@node-1", dns)}, 2},
		{"a port that the Service lacks", []*EndpointSlice{slice("10.0.0.1=ready@node-1 10.0.0.2=ready@node-2", EndpointPort{"web", TCP, 11})}, 1},
		{"a port while it is renamed", []*EndpointSlice{slice("10.0.0.1=ready@node-1", http), slice("10.0.0.1=ready@node-1 10.0.0.2=ready@node-1", EndpointPort{"web", TCP, 11})}, 2},
		{"no port at all", []*EndpointSlice{slice("10.0.0.1=ready@node-1")}, 0},
		{"terminating and dead", []*EndpointSlice{slice("10.0.0.1=serving@node-1 10.0.0.2=dead@node-1", http)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resolve(web(), c.slices...)
			want := fmt.Sprint([]HealthCheck{{web().Name, 32000, map[Family]int{IPv4: c.want, IPv6: 0}}})
			if got := fmt.Sprint(r.HealthChecks); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	drained := slice("10.0.0.1=ready@node-1 10.0.0.2=ready@node-1", http)
	drained.Hosts[0].Drain, drained.Hosts[1].Drain = true, true
	r := resolve(web(), drained, slice("10.0.0.3=ready@node-2", http))
	if n := r.HealthChecks[0].Endpoints[IPv4]; n != 0 {
		t.Errorf("all drained: %d endpoints", n)
	}
	drained.Hosts[1].Drain = false
	if n := resolve(web(), drained).HealthChecks[0].Endpoints[IPv4]; n != 1 {
		t.Errorf("one of two drained: %d endpoints", n)
	}
	plain := web()
	plain.HealthCheckNodePort = 0
	if r := resolve(plain); len(r.HealthChecks) > 0 {
		t.Errorf("without a port: %v", r.HealthChecks)
	}
}

// TestWithoutLocal: 11.8.
func TestWithoutLocal(t *testing.T) {
	for _, c := range []struct {
		hosts              string
		internal, external Policy
		want               WithoutLocal
	}{
		{"10.0.0.1=ready@node-2", PolicyCluster, PolicyCluster, WithoutLocal{}},
		{"10.0.0.1=ready@node-2", PolicyLocal, PolicyCluster, WithoutLocal{Internal: 2}},
		{"10.0.0.1=ready@node-2", PolicyLocal, PolicyLocal, WithoutLocal{Internal: 2, External: 2}},
		{"10.0.0.1=ready@node-1", PolicyLocal, PolicyLocal, WithoutLocal{}},
		{"10.0.0.1=serving@node-1", PolicyLocal, PolicyLocal, WithoutLocal{}},
		{"10.0.0.1=dead@node-2", PolicyLocal, PolicyLocal, WithoutLocal{}}, // nothing anywhere
	} {
		s := web()
		s.InternalPolicy, s.ExternalPolicy = c.internal, c.external
		r := resolve(s, slice(c.hosts, http, dns))
		if got := r.WithoutLocal[IPv4]; got != c.want || r.WithoutLocal[IPv6] != (WithoutLocal{}) {
			t.Errorf("%s, internal %s, external %s: %v, want %v", c.hosts, c.internal, c.external, r.WithoutLocal, c.want)
		}
	}
}

// TestServing: 9.4, whatever policies, hints and weights say.
func TestServing(t *testing.T) {
	s := slice("10.0.0.1=ready@node-1 10.0.0.2=serving@node-2 10.0.0.3=dead@node-1 10.0.0.4=ready@node-2", http)
	s.Hosts[3].Drain = true
	c := Choose(web(), Endpoints(PortName{web().Name, "http", TCP}, IPv4, []*EndpointSlice{s}), &Node{Name: "node-1"})
	var got []string
	for _, e := range c.Serving {
		got = append(got, e.Address().String())
	}
	if want := []string{"10.0.0.1:11", "10.0.0.2:11", "10.0.0.4:11"}; !slices.Equal(got, want) {
		t.Errorf("serving %v, want %v", got, want)
	}
}

// TestNoPrimaryFamily: 15.8, whichever address of the Node comes first.
func TestNoPrimaryFamily(t *testing.T) {
	node := &Node{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00::7")}}
	s := web()
	s.Ports[0].NodePort = 30080
	routes := func() string {
		r := Resolve(&Snapshot{Nodes: []*Node{node}, Services: []*Service{s}}, Config{NodeName: "node-1"})
		text := fmt.Sprintln(r.Notices)
		for _, route := range r.Routes {
			text += fmt.Sprintln(route.Frontend, route.Kind, route.PortName(), route.Inside(), route.Outside())
		}
		return text
	}
	before := routes()
	slices.Reverse(node.Addresses)
	if after := routes(); after != before || !strings.Contains(before, "192.168.7.1") || !strings.Contains(before, "fd00::7") {
		t.Errorf("IPv4 first:\n%s\nIPv6 first:\n%s", before, after)
	}
}

// TestFamilies: a family that the node does not have is left out (12.48, 15.7),
// and everything else stays.
func TestFamilies(t *testing.T) {
	config := Config{NodeName: "node-1", Families: []Family{IPv4}}
	in := &Snapshot{Services: []*Service{web()}, Slices: []*EndpointSlice{slice("10.0.0.1=ready@node-1", http, dns)}}
	r := Resolve(in, config)
	if len(r.Routes) != 2 || r.Routes[0].Kind != ClusterIP || len(r.HealthChecks[0].Endpoints) != 1 {
		t.Errorf("routes %v, health checks %v", r.Routes, r.HealthChecks)
	}
	if n := len(in.Services[0].ClusterIPs); n != 2 {
		t.Errorf("the Service of the snapshot has %d ClusterIPs left", n)
	}
}

// alone is a Service that is served on its load balancer addresses only (1.40).
func alone() *Service {
	s := web()
	s.ClusterIPs, s.NoClusterIP = nil, true
	s.External = &External{LoadBalancerIPs: []netip.Addr{
		netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("203.0.113.11")}}
	return s
}

// TestLoadBalancerAlone: 1.40. Numbers that count a service port once in each family do
// so, whatever the number of addresses.
func TestLoadBalancerAlone(t *testing.T) {
	s := alone()
	s.Ports[0].NodePort = 30080
	s.External.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.12")}
	r := resolve(s, slice("10.0.0.1=ready@node-2", http, dns))
	if len(r.Routes) != 6 || slices.ContainsFunc(r.Routes, func(o Route) bool { return o.Kind == ClusterIP }) || len(r.Notices) != 0 {
		t.Errorf("routes %v, notices %v", r.Routes, r.Notices)
	}
	if want := (WithoutLocal{External: 2}); r.WithoutLocal[IPv4] != want {
		t.Errorf("without local endpoints: %v, want %v", r.WithoutLocal[IPv4], want)
	}
	r = resolve(alone(), slice("10.0.0.1=ready@node-1", http, dns))
	if got := fmt.Sprint(r.HealthChecks[0].Endpoints); got != "map[IPv4:1 IPv6:0]" {
		t.Errorf("health check: %s", got)
	}
	in := &Snapshot{Services: []*Service{alone()}}
	r = Resolve(in, Config{NodeName: "node-1", Families: []Family{IPv6}})
	if len(r.Routes) != 2 || FamilyOf(r.Routes[0].Frontend.Address) != IPv6 || len(in.Services[0].External.LoadBalancerIPs) != 3 {
		t.Errorf("with IPv6 alone: %v", r.Routes)
	}
	// A ClusterIP of a family that the node lacks is no reason to serve the other addresses.
	s = web()
	s.External = alone().External
	s.ClusterIPs = s.ClusterIPs[1:]
	if r = Resolve(&Snapshot{Services: []*Service{s}}, Config{Families: []Family{IPv4}}); len(r.Routes) != 0 {
		t.Errorf("without the family of the ClusterIP: %v", r.Routes)
	}
}

// TestMasquerading: table 4-A, 1.42.
func TestMasquerading(t *testing.T) {
	const none, node, all = MasqueradeNone, MasqueradeNode, MasqueradeAll
	for _, c := range []struct {
		addresses ClientAddresses
		policy    Policy
		want      [2]Masquerading // at a ClusterIP, at other addresses
	}{
		{DefaultClientAddresses, PolicyCluster, [2]Masquerading{none, all}},
		{DefaultClientAddresses, PolicyLocal, [2]Masquerading{none, node}},
		{KeepClientAddresses, PolicyCluster, [2]Masquerading{none, node}},
		{KeepClientAddresses, PolicyLocal, [2]Masquerading{none, node}},
		{MasqueradeClientAddresses, PolicyCluster, [2]Masquerading{all, all}},
		{MasqueradeClientAddresses, PolicyLocal, [2]Masquerading{all, all}},
	} {
		s := &Service{ClientAddresses: c.addresses, ExternalPolicy: c.policy}
		clusterIP, external := Route{Service: s}, Route{Service: s, Kind: ExternalIP}
		if got := [2]Masquerading{clusterIP.Masquerading(), external.Masquerading()}; got != c.want {
			t.Errorf("%q, policy %s: %v, want %v", c.addresses, c.policy, got, c.want)
		}
	}
}
