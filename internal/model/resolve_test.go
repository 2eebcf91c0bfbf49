package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestNodePortAddresses(t *testing.T) {
	addresses := []string{"192.168.7.1", "10.1.1.1", "127.0.0.1", "2001:db8::1", "2001:db8::2", "::1", "169.254.1.1", "fe80::1"}
	for _, c := range []struct {
		name, bind string
		ranges     []string
		want       string
	}{
		{"6.2 primary", "", nil, "192.168.7.1 2001:db8::1"},
		{"6.5 all of a family", "", []string{"0.0.0.0/0"}, "10.1.1.1 169.254.1.1 192.168.7.1 2001:db8::1 2001:db8::2"},
		{"6.6 link-local", "", []string{"169.254.0.0/16", "fe80::/10"}, "169.254.1.1"},
		{"6.7 in a range", "", []string{"10.0.0.0/8", "2001:db8::2/128"}, "10.1.1.1 2001:db8::2"},
		{"6.4 a family without range", "", []string{"10.0.0.0/8"}, "10.1.1.1 2001:db8::1 2001:db8::2"},
		{"6.9 nothing matches", "", []string{"172.16.0.0/12", "fd00::/8"}, ""},
		{"4.35 never loopback", "", []string{"127.0.0.0/8", "::1/128"}, ""},
		{"12.43 bind address", "10.9.9.9", nil, "10.9.9.9 2001:db8::1"},
		{"12.43 unspecified bind address", "0.0.0.0", nil, "192.168.7.1 2001:db8::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &Node{}
			for _, a := range addresses {
				node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
			}
			var config Config
			if c.bind != "" {
				config.BindAddress = netip.MustParseAddr(c.bind)
			}
			for _, r := range c.ranges {
				config.NodePortAddresses = append(config.NodePortAddresses, netip.MustParsePrefix(r))
			}
			got := strings.Trim(fmt.Sprint(NewLocality(node, config).NodePortAddresses), "[]")
			if got != c.want {
				t.Errorf("NodePorts on %q, want %q", got, c.want)
			}
		})
	}
}

func TestMergePrefixes(t *testing.T) {
	for in, want := range map[string]string{
		"":                                       "[]",
		"10.20.30.40/16":                         "[10.20.0.0/16]",
		"10.96.128.0/17 10.96.0.0/12":            "[10.96.0.0/12]",
		"10.96.0.0/12 10.96.0.0/12":              "[10.96.0.0/12]",
		"10.112.0.0/12 10.96.0.0/12":             "[10.96.0.0/12 10.112.0.0/12]",
		"fd00::/112 10.96.0.0/12 fd00::/64 ::/0": "[10.96.0.0/12 ::/0]",
		"10.0.0.0/16 10.0.0.0/8 10.0.0.0/24 11.0.0.0/8": "[10.0.0.0/8 11.0.0.0/8]",
	} {
		var prefixes []netip.Prefix
		for _, s := range strings.Fields(in) {
			prefixes = append(prefixes, netip.MustParsePrefix(s))
		}
		if got := fmt.Sprint(MergePrefixes(prefixes)); got != want {
			t.Errorf("merge %q: %s, want %s", in, got, want)
		}
	}
}

// TestConflicts orders claims pairwise: the first one named gets the frontend.
func TestConflicts(t *testing.T) {
	old, young := int64(1), int64(2)
	usable := &Choice{Cluster: []Endpoint{{Host: &Host{Ready: true}}}}
	claim := func(name string, kind Kind, created int64, c *Choice) Route {
		n := ServiceName{"default", name}
		return Route{Kind: kind, Service: &Service{Name: n, Created: created}, Port: &ServicePort{}, Choice: c}
	}
	for _, c := range []struct {
		name          string
		winner, loser Route
	}{
		{"4.39 the older", claim("z", ExternalIP, old, usable), claim("a", ExternalIP, young, usable)},
		{"4.39 a known age", claim("z", ExternalIP, young, usable), claim("a", ExternalIP, 0, usable)},
		{"4.39 the first by name", claim("a", ExternalIP, old, usable), claim("b", ExternalIP, old, usable)},
		{"4.40 with endpoints", claim("z", ExternalIP, young, usable), claim("a", ExternalIP, old, &Choice{})},
		{"4.37 address before NodePort", claim("z", LoadBalancerIP, young, usable), claim("a", NodePort, old, usable)},
		{"4.40 before 4.37", claim("z", NodePort, young, usable), claim("a", LoadBalancerIP, old, &Choice{})},
		{"a ClusterIP is safe", claim("z", ClusterIP, young, &Choice{}), claim("a", ExternalIP, old, usable)},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, all := range [][]Route{{c.winner, c.loser}, {c.loser, c.winner}} {
				r := NewRouter()
				r.join(&all[0])
				r.join(&all[1])
				if winner := r.winners[Frontend{}]; winner.PortName() != c.winner.PortName() {
					t.Errorf("winner is %v, want %s", winner, c.winner.PortName())
				}
				if n := r.conflictNotices(&routed{ServiceState{Service: c.loser.Service}, []Route{c.loser}}); len(n) != 1 || n[0].Object != c.loser.Service.Name.Object() {
					t.Errorf("notices: %v", n)
				}
			}
		})
	}
}
