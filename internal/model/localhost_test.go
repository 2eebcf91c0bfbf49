package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func localhostConfig(ranges ...string) Config {
	c := Config{NodeName: "node-1", NodePortPrimary: true}
	for _, r := range append(ranges, "127.0.0.0/8", "::1/128") {
		c.NodePortAddresses = append(c.NodePortAddresses, netip.MustParsePrefix(r))
	}
	return c
}

// withNodePorts returns a Service with a NodePort of TCP and one of UDP.
func withNodePorts() *Service {
	s := web()
	s.ExternalPolicy, s.HealthCheckNodePort = PolicyCluster, 0
	s.Ports[0].NodePort, s.Ports[1].NodePort = 30080, 30053
	return s
}

var node1 = &Node{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}

// TestLocalhostRoutes: NodePorts of TCP have a frontend on localhost where that is asked
// for (6.14, 6.15).
func TestLocalhostRoutes(t *testing.T) {
	on := func(s *Service, c Config) string {
		var out []string
		for _, r := range Resolve(&Snapshot{Services: []*Service{s}, Nodes: []*Node{node1}}, c).Routes {
			if r.Frontend.OnLocalhost() {
				out = append(out, fmt.Sprintf("%s %s", r.Frontend, r.Kind))
			}
		}
		return strings.Join(out, ", ")
	}
	both := "tcp 127.0.0.1:30080 NodePort, tcp [::1]:30080 NodePort"
	if got := on(withNodePorts(), localhostConfig()); got != both {
		t.Errorf("got %s", got)
	}
	if got := on(withNodePorts(), localhostConfig("0.0.0.0/0", "::/0")); got != both {
		t.Errorf("with all addresses: %s", got)
	}
	if got := on(web(), localhostConfig()); got != "" {
		t.Errorf("without NodePorts: %s", got)
	}
	everywhere := Config{NodeName: "node-1", NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	if got := on(withNodePorts(), everywhere); got != "" {
		t.Errorf("all addresses alone: %s", got)
	}
	v4 := localhostConfig()
	v4.Families = []Family{IPv4}
	if got := on(withNodePorts(), v4); got != "tcp 127.0.0.1:30080 NodePort" {
		t.Errorf("on a machine without IPv6: %s", got)
	}
}

// TestBehindLocalhost: a listener connects to the NodePort on an address of the node,
// else to the ClusterIP, and never to another Service (6.17).
func TestBehindLocalhost(t *testing.T) {
	rival := &Service{
		Name: ServiceName{"default", "rival"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.9")},
		External: &External{ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		Ports:    []ServicePort{{Name: "http", Protocol: TCP, Port: 30080}},
	}
	onlyLocalhost := localhostConfig()
	onlyLocalhost.NodePortPrimary = false
	everywhere, second := localhostConfig("0.0.0.0/0", "::/0"), localhostConfig("10.0.0.0/8")
	second.NodePortPrimary = false
	for _, c := range []*Config{&everywhere, &second} {
		c.InterfaceAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	}
	for _, c := range []struct {
		name     string
		services []*Service
		config   Config
		want     string
	}{
		{"first address", []*Service{withNodePorts()}, localhostConfig(), "tcp 192.0.2.1:30080, tcp [2001:db8::1]:30080"},
		{"no address", []*Service{withNodePorts()}, onlyLocalhost, "tcp 10.96.0.1:80, tcp [fd00::1]:80"},
		{"another Service has the address", []*Service{withNodePorts(), rival}, localhostConfig(), "tcp 10.96.0.1:80, tcp [2001:db8::1]:30080"},
		{"all addresses", []*Service{withNodePorts()}, everywhere, "tcp 192.0.2.1:30080, tcp [2001:db8::1]:30080"},
		{"others than the first", []*Service{withNodePorts()}, second, "tcp 10.0.0.9:30080, tcp [fd00::1]:80"},
		{"none", nil, localhostConfig(), "none, none"},
	} {
		r := NewRouter()
		r.Configure(c.config, []*Node{node1}, nil)
		r.SetServices((&Snapshot{Services: c.services}).Update().Services)
		var got []string
		for _, f := range Families {
			text := "none"
			if to, route := r.BehindLocalhost(Frontend{Address: loopbacks[f], Protocol: TCP, Port: 30080}); route != nil {
				text = to.String()
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}
