package model

import (
	"net/netip"
	"testing"
	"time"
)

// TestSlowStart: 3.68, 3.71. What endpoints that start slowly get in both sets.
func TestSlowStart(t *testing.T) {
	for _, c := range []struct {
		name, endpoints string
		parts           map[byte]uint8
		cluster, local  string
	}{
		{"none", "R1 R2", nil, "1:50 2:50", ""},
		{"one", "R1 R2 R3", map[byte]uint8{3: 1}, "1:48 2:48 3:5", ""},
		{"weights", "R1(w:3) R2(w:2)", map[byte]uint8{2: 5}, "1:75 2:25", ""},
		{"two", "R1 R2 R3", map[byte]uint8{2: 2, 3: 8}, "1:50 2:10 3:40", ""},
		{"the only one", "R1", map[byte]uint8{1: 3}, "1:100", ""},
		{"all alike", "R1 R2", map[byte]uint8{1: 3, 2: 3}, "1:50 2:50", ""},
		{"all that are left", "R1(f) R2 R3", map[byte]uint8{2: 1, 3: 1}, "2:50 3:50", ""},
		{"on this node", "R1(@n1) R2(@n1) R3(@n2)", map[byte]uint8{2: 1}, "1:48 2:5 3:48", "1:91 2:9"},
		{"on another node", "R1(@n1) R2(@n1) R3(@n2)", map[byte]uint8{3: 1}, "1:48 2:48 3:5", "1:50 2:50"},
		{"not a candidate", "R1 R2 R3(p1)", map[byte]uint8{3: 1}, "1:50 2:50", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := endpoints(t, c.endpoints)
			s := &Service{Extras: &Extras{SlowStart: time.Minute}}
			for _, e := range all {
				if part := c.parts[e.Host.Address.As4()[3]]; part != 0 {
					s.Extras.Starting = append(s.Extras.Starting, Starting{Endpoint: e.Address(), Part: part})
				}
			}
			choice := Choose(s, all, &Node{Name: "n1"})
			if got := shares(choice.Cluster); got != c.cluster {
				t.Errorf("cluster set %q, want %q", got, c.cluster)
			}
			if got := shares(choice.Local); got != c.local {
				t.Errorf("local set %q, want %q", got, c.local)
			}
			for _, e := range choice.Cluster {
				if start := s.Start(e); (start != nil) != (e.Part != 0 && e.Part != StartParts) {
					t.Errorf("%s has the part %d, and the entry %v", e.Address(), e.Part, start)
				}
			}
		})
	}
}

// TestSlowStartWithoutEffect: without an endpoint that starts, and if the parts are equal, the
// choice has the endpoints that were given: there is no copy.
func TestSlowStartWithoutEffect(t *testing.T) {
	all := endpoints(t, "R1 R2")
	even := &Extras{SlowStart: time.Minute}
	for _, e := range all {
		even.Starting = append(even.Starting, Starting{Endpoint: e.Address(), Part: 4})
	}
	for _, x := range []*Extras{nil, {SlowStart: time.Minute}, even} {
		if c := Choose(&Service{Extras: x}, all, &Node{Name: "n1"}); &c.Cluster[0] != &all[0] || c.Cluster[0].Part != 0 {
			t.Errorf("%+v: the endpoints are copied, with the part %d", x, c.Cluster[0].Part)
		}
	}
}

// TestSlowStartOfRange: an endpoint of a range has the part for all ports of its address.
func TestSlowStartOfRange(t *testing.T) {
	all := withPort(hostsOf([]*EndpointSlice{{Family: IPv4, Hosts: []Host{
		{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true}, {Address: netip.MustParseAddr("10.0.0.2"), Ready: true, Serving: true}}}}, IPv4), 9000)
	s := &Service{Extras: &Extras{Starting: []Starting{{Endpoint: netip.MustParseAddrPort("10.0.0.2:0"), Part: 1}}}}
	if got := shares(Choose(s, all, &Node{}).Cluster); got != "1:91 2:9" {
		t.Errorf("shares %q", got)
	}
}
