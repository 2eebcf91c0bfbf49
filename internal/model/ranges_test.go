package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// ranged returns a Service with ranges, a slice of it without ports, and one with a port
// and another family.
func ranged(name string, created int64, ranges ...PortRange) ServiceState {
	hosts := func(addrs ...string) (out []Host) {
		for _, a := range addrs {
			out = append(out, Host{Address: netip.MustParseAddr(a), Ready: true, Serving: true})
		}
		return out
	}
	return ServiceState{
		&Service{
			Name: ServiceName{"default", name}, Created: created, Extras: &Extras{Ranges: ranges},
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")},
			Ports:      []ServicePort{{Name: "sip", Protocol: UDP, Port: 5060, NodePort: 30060}},
		},
		[]*EndpointSlice{
			{Name: "a", Family: IPv4, Hosts: hosts("10.128.0.2", "10.128.0.1")},
			{Name: "b", Family: IPv4, Ports: []EndpointPort{{"sip", UDP, 5061}, {"more", TCP, 80}}, Hosts: hosts("10.128.0.1", "10.128.0.3")},
			{Name: "c", Family: IPv6, Hosts: hosts("fd00:128::1")},
		},
	}
}

// at gives the Service external IPs and load balancer addresses, without ClusterIPs.
func (s ServiceState) at(external, balanced string) ServiceState {
	s.Service.External = &External{ExternalIPs: addrs(external), LoadBalancerIPs: addrs(balanced)}
	return s
}

func addrs(text string) (out []netip.Addr) {
	for _, a := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// rangesOf lists the ranges that a router serves, with their Services and endpoints.
func rangesOf(r *Router) string {
	var out []string
	for _, route := range r.Routes() {
		if route.Frontend.IsRange() {
			out = append(out, fmt.Sprintf("%s %s", route.Frontend, route.Service.Name.Name))
		}
	}
	return strings.Join(out, ", ")
}

func setOn(r *Router, states ...ServiceState) {
	for _, s := range states {
		r.SetServices(map[ServiceName]ServiceState{s.Service.Name: s})
	}
}

// 1.50, 1.53: a range is a frontend on each address, and NodePorts have none.
func TestRangeFrontends(t *testing.T) {
	s := ranged("web", 1, rangeOf(UDP, 10000, 20000, 0), rangeOf(TCP, 1, AllPorts, 0), rangeOf(TCP, 5060, 0, 0), rangeOf(SCTP, 7, 9, 5000)).at("192.0.2.1", "198.51.100.1 2001:db8::1")
	r := NewRouter()
	r.Configure(Config{}, []*Node{{Addresses: addrs("203.0.113.1")}}, nil)
	setOn(r, s)
	var got []string
	for _, route := range r.Routes() {
		if route.Port.NodePort == 0 && FamilyOf(route.Frontend.Address) == IPv4 {
			got = append(got, fmt.Sprintf("%s %s %s %v", route.Frontend, route.Kind, route.PortName(), addressesOf(route.Choice.Cluster)))
		}
	}
	hosts := func(port int) string {
		return fmt.Sprintf("[10.128.0.1:%[1]d 10.128.0.2:%[1]d 10.128.0.3:%[1]d]", port)
	}
	var want []string
	for _, a := range []string{"10.96.0.1:%s ClusterIP", "192.0.2.1:%s external IP", "198.51.100.1:%s load balancer IP"} {
		want = append(want,
			"tcp "+fmt.Sprintf(a, "1-65535")+" default/web:all/tcp "+hosts(0),
			"tcp "+fmt.Sprintf(a, "5060")+" default/web:5060/tcp "+hosts(5060),
			"udp "+fmt.Sprintf(a, "10000-20000")+" default/web:10000-20000/udp "+hosts(0),
			"sctp "+fmt.Sprintf(a, "7-9")+" default/web:7-9/sctp:5000 "+hosts(5000))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if six := r.Serves(Frontend{netip.MustParseAddr("2001:db8::1"), SCTP, 8, 0}); six == nil || six.Frontend.String() != "sctp [2001:db8::1]:7-9" {
		t.Errorf("the IPv6 address is served by %v", six)
	}
}

func addressesOf(endpoints []Endpoint) (out []netip.AddrPort) {
	for _, e := range endpoints {
		out = append(out, e.Address())
	}
	return out
}

// 1.54: ranges are not served on addresses of the node, except those of files, and the
// reason is reported.
func TestRangeOnNode(t *testing.T) {
	all, explicit := rangeOf(UDP, 1, AllPorts, 0), rangeOf(UDP, 10, 20, 0)
	explicit.OnNode = true
	const onNode = "Service default/web: all/udp not served on 192.0.2.1, an address of this node: this would take ports from the node's own programs"
	for _, c := range []struct {
		name       string
		s          ServiceState
		node, want string
		notices    string
	}{
		{"a virtual address", ranged("web", 1, all).at("192.0.2.1", ""), "192.0.2.9", "udp 192.0.2.1:1-65535 web", "[]"},
		{"of an interface", ranged("web", 1, all).at("192.0.2.1 192.0.2.2", ""), "192.0.2.1", "udp 192.0.2.2:1-65535 web", "[" + onNode + "]"},
		{"a loopback address", ranged("web", 1, all).at("127.0.0.9", ""), "", "", "[" + strings.ReplaceAll(onNode, "192.0.2.1", "127.0.0.9") + "]"},
		{"of a load balancer", ranged("web", 1, all).at("192.0.2.2", "192.0.2.1 192.0.2.3"), "192.0.2.1", "udp 192.0.2.2:1-65535 web",
			"[" + onNode + " Service default/web: all/udp not served on 192.0.2.3, an address of a load balancer that hands out addresses of nodes: this would take ports from the node's own programs]"},
		{"of the operator", ranged("web", 1, explicit).at("192.0.2.1", "192.0.2.3"), "192.0.2.1", "udp 192.0.2.1:10-20 web, udp 192.0.2.3:10-20 web", "[]"},
	} {
		r := NewRouter()
		r.Configure(Config{InterfaceAddresses: addrs(c.node)}, nil, nil)
		c.s.Service.ClusterIPs = addrs("10.96.0.1")
		setOn(r, c.s)
		got := strings.TrimPrefix(strings.TrimPrefix(rangesOf(r), "udp 10.96.0.1:"+map[bool]string{true: "10-20 web", false: "1-65535 web"}[c.name == "of the operator"]), ", ")
		notices := slices.DeleteFunc(slices.Clone(r.Notices()), func(n Notice) bool { return n.Reason == NoNodePortAddress })
		if got != c.want || fmt.Sprint(notices) != c.notices {
			t.Errorf("%s: %s, notices %s\nwant %s, %s", c.name, got, notices, c.want, c.notices)
		}
	}
}

// 1.54, 13.12: an address that the node gets or loses changes the ranges on it, and
// nothing else.
func TestRangeFollowsNode(t *testing.T) {
	r := NewRouter()
	move := func(own, want string) {
		t.Helper()
		changes, all := r.Configure(Config{InterfaceAddresses: addrs(own)}, nil, nil)
		if got := frontendsOf(changes); got != want || all {
			t.Errorf("with %q: %q, want %q; all: %t", own, got, want, all)
		}
	}
	setOn(r, ranged("web", 1, rangeOf(UDP, 10, 20, 0)).at("192.0.2.1", ""), ranged("other", 1, rangeOf(UDP, 10, 20, 0)).at("192.0.2.2", ""))
	move("203.0.113.1", "")
	move("203.0.113.1 192.0.2.1", "-udp 192.0.2.1:10-20")
	move("192.0.2.1", "")
	move("192.0.2.2", "+udp 192.0.2.1:10-20 -udp 192.0.2.2:10-20")
	setOn(r, ServiceState{Service: &Service{Name: ServiceName{"default", "other"}}})
	move("", "")
	if n := r.Notices(); slices.ContainsFunc(n, func(n Notice) bool { return n.Reason == NodeAddress }) {
		t.Errorf("notices: %v", n)
	}
}

// 1.55: a port that is defined exactly wins over a range, and the first of overlapping
// ranges over the others.
func TestRangePrecedence(t *testing.T) {
	r := NewRouter()
	old, young := ranged("old", 1, rangeOf(UDP, 5000, 6000, 0)).at("192.0.2.1", ""), ranged("young", 2, rangeOf(UDP, 5500, 7000, 0), rangeOf(TCP, 1, 9, 0)).at("192.0.2.1", "")
	young.Service.ClusterIPs, young.Service.Ports = addrs("10.96.0.2"), nil
	serves := func(port uint16, want string) {
		t.Helper()
		got := "nothing"
		if route := r.Serves(Frontend{Address: netip.MustParseAddr("192.0.2.1"), Protocol: UDP, Port: port}); route != nil {
			got = route.PortName().String()
		}
		if got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
	setOn(r, young, old)
	for port, want := range map[uint16]string{4999: "nothing", 5000: "default/old:5000-6000/udp", 5060: "default/old:sip", 5600: "default/old:5000-6000/udp", 6001: "nothing"} {
		serves(port, want)
	}
	const notice = "Service default/young: udp 192.0.2.1:5500-7000 (external IP) is not served: it overlaps udp 192.0.2.1:5000-6000 of Service default/old"
	if n := slices.DeleteFunc(slices.Clone(r.Notices()), func(n Notice) bool { return n.Reason != Conflict }); len(n) != 1 || n[0].String() != notice {
		t.Errorf("notices %v, want %s", n, notice)
	}
	for name, winner := range map[string]string{"old": "", "young": "udp 192.0.2.1:5000-6000"} {
		for _, c := range r.View(ServiceName{"default", name}).Claims {
			if f := c.Route.Frontend; f.Address.String() != "192.0.2.1" || f.Port < 5000 || !f.IsRange() {
				continue
			}
			if (c.Winner == nil) != (winner == "") || c.Winner != nil && c.Winner.Frontend.String() != winner || len(c.Losers) != map[string]int{"old": 1}[name] {
				t.Errorf("%s: winner %v, losers %v", name, c.Winner, c.Losers)
			}
		}
	}
	r.SetServices(map[ServiceName]ServiceState{old.Service.Name: {}})
	serves(5600, "default/young:5500-7000/udp")
	serves(5060, "nothing")
	if n := r.Notices(); len(n) > 0 {
		t.Errorf("notices %v", n)
	}
}

// 1.56: a client of a range with session affinity is hashed.
func TestRangeAffinity(t *testing.T) {
	s := ranged("web", 1, rangeOf(UDP, 10, 20, 0), rangeOf(UDP, 21, 0, 0))
	s.Service.AffinityTimeout = time.Hour
	for _, route := range RouteService(s.Service, s.Slices, NewLocality(&Node{}, Config{})) {
		timeout, scheduler := time.Hour, DefaultScheduler
		if route.Frontend.IsRange() {
			timeout, scheduler = 0, SourceHash
		}
		if route.AffinityTimeout() != timeout || route.Scheduler() != scheduler {
			t.Errorf("%s: affinity %s, scheduler %s", route.Frontend, route.AffinityTimeout(), route.Scheduler())
		}
	}
}

// TestFrontendSize: there is one for each claim, and one for each entry of many maps.
func TestFrontendSize(t *testing.T) {
	if n := unsafe.Sizeof(Frontend{}); n > unsafe.Sizeof(netip.Addr{})+8 {
		t.Errorf("%d bytes", n)
	}
}
