package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestConfigure: 13.12, what makes every route again, and what does not.
func TestConfigure(t *testing.T) {
	start := Config{NodeName: "node-1", NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		InterfaceAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("198.51.100.1")}}
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.112.0.0/16")}
	const every = "~tcp 0.0.0.0:30080 ~tcp 10.96.0.1:80"
	for _, c := range []struct {
		name   string
		change func(c *Config, node *Node, cidrs []netip.Prefix)
		want   string // frontends that change
		base   bool
		serve  string // NodePorts afterwards, where that changes
	}{
		{"nothing", func(*Config, *Node, []netip.Prefix) {}, "", false, ""},
		{"ServiceCIDRs in another order", func(_ *Config, _ *Node, c []netip.Prefix) { c[0], c[1] = c[1], c[0] }, "", false, ""},
		{"another ServiceCIDR", func(_ *Config, _ *Node, c []netip.Prefix) { c[0] = netip.MustParsePrefix("10.97.0.0/16") }, every, true, ""},
		{"the Node is drained", func(_ *Config, n *Node, _ []netip.Prefix) { n.Leaving = true }, "", false, ""},
		{"another zone", func(_ *Config, n *Node, _ []netip.Prefix) { n.Zone = "b" }, every, true, ""},
		{"another address of the Node object", func(_ *Config, n *Node, _ []netip.Prefix) { n.Addresses[0] = netip.MustParseAddr("192.0.2.2") }, every, true, ""},
		{"an address of a pod's interface", func(c *Config, _ *Node, _ []netip.Prefix) {
			c.add("169.254.1.1", "fe80::1", "203.0.113.7")
		}, "", false, ""},
		{"addresses in another order, one twice", func(c *Config, _ *Node, _ []netip.Prefix) {
			slices.Reverse(c.InterfaceAddresses)
			c.add("198.51.100.1")
		}, "", false, ""},
		{"one more address", func(c *Config, _ *Node, _ []netip.Prefix) { c.add("198.51.100.2") }, "", false, "198.51.100.1 198.51.100.2"},
		{"another address", func(c *Config, _ *Node, _ []netip.Prefix) {
			c.InterfaceAddresses = nil
			c.add("198.51.100.2")
		}, "", false, "198.51.100.2"},
		{"the last address goes", func(c *Config, _ *Node, _ []netip.Prefix) {
			c.InterfaceAddresses = nil
			c.add("203.0.113.7")
		}, "-tcp 0.0.0.0:30080", false, "none"},
		{"another mode", func(c *Config, _ *Node, _ []netip.Prefix) { c.MasqueradeAll = true }, every, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := Node{Name: "node-1", Zone: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
			r := NewRouter()
			r.Configure(start, []*Node{&node}, cidrs)
			name := ServiceName{"default", "web"}
			r.SetServices(map[ServiceName]ServiceState{name: {Service: &Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
				Ports: []ServicePort{{Protocol: TCP, Port: 80, NodePort: 30080}}}}})

			config, other, ranges := start, node, slices.Clone(cidrs)
			config.InterfaceAddresses, other.Addresses = slices.Clone(start.InterfaceAddresses), slices.Clone(node.Addresses)
			c.change(&config, &other, ranges)
			changes, base := r.Configure(config, []*Node{{Name: "node-2"}, &other}, ranges)
			if got := frontendsOf(changes); got != c.want || base != c.base {
				t.Errorf("changes %q, base %t; want %q, %t", got, base, c.want, c.base)
			}
			serve := strings.TrimPrefix(cmp.Or(c.serve, "198.51.100.1"), "none")
			if got := strings.Trim(fmt.Sprint(r.NodePortAddresses()), "[]"); got != serve {
				t.Errorf("NodePorts are served on %q, want %q", got, serve)
			}
			if r.Node().Leaving != other.Leaving {
				t.Errorf("the router does not know the Node as it is")
			}
		})
	}
}

func (c *Config) add(addrs ...string) {
	for _, a := range addrs {
		c.InterfaceAddresses = append(c.InterfaceAddresses, netip.MustParseAddr(a))
	}
}

// frontendsOf names frontends that come, change or go, sorted.
func frontendsOf(changes []RouteChange) string {
	var out []string
	for _, c := range changes {
		sign := "~"
		switch {
		case c.Old == nil:
			sign = "+"
		case c.New == nil:
			sign = "-"
		}
		out = append(out, sign+c.Frontend.String())
	}
	slices.Sort(out)
	text := fmt.Sprint(out)
	return text[1 : len(text)-1]
}

// TestJoinChanges: what the second list says of a frontend follows what the
// first one says.
func TestJoinChanges(t *testing.T) {
	routes := make([]Route, 6)
	f := func(port uint16) Frontend { return Frontend{Port: port} }
	got := JoinChanges(
		[]RouteChange{{f(1), nil, &routes[0]}, {f(2), &routes[1], &routes[2]}, {f(3), nil, &routes[3]}},
		[]RouteChange{{f(2), &routes[2], nil}, {f(3), &routes[3], nil}, {f(4), nil, &routes[4]}, {f(1), &routes[0], &routes[5]}})
	slices.SortFunc(got, func(a, b RouteChange) int { return a.Frontend.Compare(b.Frontend) })
	want := []RouteChange{{f(1), nil, &routes[5]}, {f(2), &routes[1], nil}, {f(4), nil, &routes[4]}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
