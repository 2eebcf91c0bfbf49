package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// 4.65, 4.67, 4.68: of the Services with an address, the one decides about echo requests
// for which most clients get an answer, in whatever order they come and go.
func TestEchoOfSharedAddress(t *testing.T) {
	shared := netip.MustParseAddr("203.0.113.20")
	n := 0
	service := func(name string, endpoints []string, change ...func(*Service)) ServiceState {
		n++
		s := &Service{Name: ServiceName{"default", name}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(n)})},
			External: &External{LoadBalancerIPs: []netip.Addr{shared}}, Ports: []ServicePort{{Protocol: TCP, Port: uint16(n)}}}
		for _, c := range change {
			c(s)
		}
		slice := &EndpointSlice{Service: name, Family: IPv4, Ports: []EndpointPort{{"", TCP, 8080}}}
		for i, node := range endpoints {
			slice.Hosts = append(slice.Hosts, Host{Address: netip.AddrFrom4([4]byte{10, 128, 0, byte(i)}), Ready: true, Place: OnNode(node)})
		}
		return ServiceState{s, []*EndpointSlice{slice}}
	}
	restricted := func(s *Service) { s.External.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }
	local := func(s *Service) { s.ExternalPolicy = PolicyLocal }
	worst := []ServiceState{ // last
		service("e-all", []string{"here"}),
		service("d-restricted", []string{"here"}, restricted),
		service("c-inside", []string{"elsewhere"}, local),
		service("b-restricted-inside", []string{"elsewhere"}, local, restricted),
		service("a-empty", nil),
	}
	r := NewRouter()
	r.Configure(Config{NodeName: "here", AnswerPing: true}, []*Node{{Name: "here", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}}, nil)
	var want []string
	check := func(step string, changes []RouteChange) {
		t.Helper()
		winner := slices.MinFunc(worst, func(a, b ServiceState) int {
			return strings.Compare(fmt.Sprint(slices.Contains(want, b.Service.Name.Name)), fmt.Sprint(slices.Contains(want, a.Service.Name.Name)))
		}).Service.Name
		if got := r.Echo(shared); len(want) == 0 && got != nil || len(want) > 0 && (got == nil || got.Service.Name != winner) {
			t.Errorf("%s: %+v decides, want %s", step, got, winner)
		}
		i := slices.IndexFunc(changes, func(c RouteChange) bool { return c.Frontend == Echo(shared) })
		if i < 0 || changes[i].New != r.Echo(shared) {
			t.Errorf("%s: changes %v", step, changes)
		}
	}
	for _, s := range []int{3, 4, 2, 0, 1} {
		want = append(want, worst[s].Service.Name.Name)
		check("with "+worst[s].Service.Name.Name, r.SetServices(map[ServiceName]ServiceState{worst[s].Service.Name: worst[s]}))
	}
	for _, s := range worst {
		want = slices.DeleteFunc(want, func(n string) bool { return n == s.Service.Name.Name })
		check("without "+s.Service.Name.Name, r.SetServices(map[ServiceName]ServiceState{s.Service.Name: {}}))
	}
	if _, ok := r.echoes.winners[shared]; ok {
		t.Error("an address without a Service is kept")
	}
}

// 4.66: addresses of nodes are left alone: a Service with one of this node has those of
// others, too. With ranges, other external addresses are, too.
func TestEchoAddresses(t *testing.T) {
	for _, c := range []struct {
		name, addresses, ranges, want string
		balance                       bool
	}{
		{"external addresses", "203.0.113.1 203.0.113.2", "", "10.96.0.1 203.0.113.1 203.0.113.2", false},
		{"an address of this node", "192.168.7.1 192.168.7.2", "", "10.96.0.1", false},
		{"in a Balance", "192.168.7.1 203.0.113.1", "", "203.0.113.1", true},
		{"ranges", "203.0.113.1 198.51.100.1", "203.0.113.0/24", "10.96.0.1 203.0.113.1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Service{Name: ServiceName{"default", "web"}, External: &External{}, Ports: []ServicePort{{Name: "a", Protocol: TCP, Port: 80, NodePort: 30080}, {Name: "b", Protocol: UDP, Port: 80}}}
			for _, a := range strings.Fields(c.addresses) {
				s.External.LoadBalancerIPs = append(s.External.LoadBalancerIPs, netip.MustParseAddr(a))
			}
			if s.Balance, s.NoClusterIP = c.balance, c.balance; !c.balance {
				s.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.96.0.1")}
			}
			config := Config{NodeName: "node", AnswerPing: true}
			for _, p := range strings.Fields(c.ranges) {
				config.LoadBalancerCIDRs = append(config.LoadBalancerCIDRs, netip.MustParsePrefix(p))
			}
			nodes := []*Node{{Name: "node", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}}
			var got []string
			for _, e := range Resolve(&Snapshot{Nodes: nodes, Services: []*Service{s}}, config).Echoes {
				got = append(got, e.Frontend.Address.String())
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
			config.AnswerPing = false
			if off := Resolve(&Snapshot{Nodes: nodes, Services: []*Service{s}}, config); len(off.Echoes)+len(off.AnswerFrom) > 0 {
				t.Errorf("switched off: %v, %v", off.Echoes, off.AnswerFrom)
			}
		})
	}
}

// 4.68: a load balancer address that is an external IP, too, has the source ranges for echo requests, as for
// connections.
func TestEchoOfRepeatedAddress(t *testing.T) {
	shared := netip.MustParseAddr("203.0.113.1")
	ports := []ServicePort{{Name: "a", Protocol: TCP, Port: 80}}
	for _, extras := range []*Extras{nil, {Ranges: []PortRange{{ServicePort: ServicePort{Protocol: UDP, Port: 1000}, Last: 2000}}}} {
		s := &Service{Name: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: ports, Extras: extras,
			External: &External{ExternalIPs: []netip.Addr{shared}, LoadBalancerIPs: []netip.Addr{shared}, SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
		nodes := []*Node{{Name: "node", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}}
		routing := Resolve(&Snapshot{Nodes: nodes, Services: []*Service{s}}, Config{NodeName: "node", AnswerPing: true})
		i := slices.IndexFunc(routing.Echoes, func(r *Route) bool { return r.Frontend.Address == shared })
		if i < 0 || routing.Echoes[i].Sources == nil {
			t.Errorf("with ranges %v: echo requests to %s are answered for all clients: %v", extras != nil, shared, routing.Echoes)
		}
	}
}

// 4.69: echo requests are answered from the first address of the Node, or from another one
// if no interface has that; without any, that is reported once for each family.
func TestAnswerFrom(t *testing.T) {
	for _, c := range []struct{ name, node, interfaces, want, notice string }{
		{"the Node's", "192.168.7.1 192.168.7.2 fd00:7::1", "", "map[IPv4:192.168.7.1 IPv6:fd00:7::1]", ""},
		{"on an interface", "192.168.7.2", "127.0.0.1 192.168.7.1 192.168.7.2 fd00:7::1", "map[IPv4:192.168.7.2 IPv6:fd00:7::1]", ""},
		{"not on an interface", "203.0.113.9", "127.0.0.1 169.254.1.1 192.168.7.1", "map[IPv4:192.168.7.1]", "IPv6"},
		{"none", "", "", "map[]", "IPv4 IPv6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, node := Config{NodeName: "node", AnswerPing: true}, &Node{Name: "node"}
			for _, a := range strings.Fields(c.node) {
				node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
			}
			for _, a := range strings.Fields(c.interfaces) {
				config.InterfaceAddresses = append(config.InterfaceAddresses, netip.MustParseAddr(a))
			}
			r := NewRouter()
			r.Configure(config, []*Node{node}, nil)
			if got := fmt.Sprint(r.Base().AnswerFrom); got != c.want || len(r.Notices()) > 0 {
				t.Errorf("got %s, want %s; notices %v", got, c.want, r.Notices())
			}
			r.SetServices(map[ServiceName]ServiceState{web().Name: {Service: web()}})
			var families []string
			for _, n := range r.Notices() {
				if n.Reason == NoPingAddress {
					_, rest, _ := strings.Cut(n.Message, "over ")
					family, _, _ := strings.Cut(rest, ":")
					families = append(families, family)
				}
			}
			if strings.Join(families, " ") != c.notice {
				t.Errorf("notices %v, want %q", r.Notices(), c.notice)
			}
			if r.SetServices(map[ServiceName]ServiceState{web().Name: {}}); len(r.Notices()) > 0 {
				t.Errorf("notices without Services: %v", r.Notices())
			}
		})
	}
}
