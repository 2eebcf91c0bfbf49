package model

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestNumberServers: a server has the same number at all ports, servers with the same address are
// told apart, and one that comes seldom changes the number of another.
func TestNumberServers(t *testing.T) {
	at := func(port uint16) (all []netip.AddrPort) {
		for i := range 200 {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), port))
		}
		return append(all, netip.AddrPortFrom(all[0].Addr(), port+1))
	}
	first, second := NumberServers(at(80)), NumberServers(at(443))
	seen := make(map[uint16]bool)
	for i, e := range at(80) {
		n := first[e]
		if n == 0 || n > MaxServerNumber || seen[n] || n != second[at(443)[i]] {
			t.Errorf("%s has number %d at port 80, and %d at port 443; taken: %v", e, n, second[at(443)[i]], seen[n])
		}
		seen[n] = true
	}
	moved := 0
	for e, n := range NumberServers(at(80)[1:100]) {
		if first[e] != n {
			moved++
		}
	}
	if moved > 2 { // by collisions of 200 numbers among 16,383
		t.Errorf("%d of 99 servers have another number without the others", moved)
	}
	many := make([]netip.AddrPort, MaxServerNumber+5)
	for i := range many {
		many[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
	}
	if got := len(NumberServers(many)); got != MaxServerNumber {
		t.Errorf("%d of %d servers have a number", got, len(many))
	}
}

// TestBindsTogether: 5.16, a Balance with several ports binds a client for all of them, unless one is a
// range; a Service does not.
func TestBindsTogether(t *testing.T) {
	wide := PortRange{ServicePort: ServicePort{Protocol: UDP, Port: 10000}, Last: 19999}
	for _, c := range []struct {
		balance      bool
		ports        int
		ranges       []PortRange
		together     bool
		timeout      time.Duration // of the first port
		byClientHash bool
	}{
		{true, 2, nil, true, time.Minute, false},
		{true, 1, nil, false, time.Minute, false},
		{false, 2, nil, false, time.Minute, false},
		{true, 2, []PortRange{wide}, false, 0, true},
		{false, 2, []PortRange{wide}, false, time.Minute, false},
	} {
		s := &Service{Balance: c.balance, AffinityTimeout: time.Minute, Ports: slices.Repeat([]ServicePort{{Protocol: TCP, Port: 80}}, c.ports), Extras: &Extras{Ranges: c.ranges}}
		r := &Route{Frontend: Frontend{Protocol: TCP, Port: 80}, Service: s, Port: &s.Ports[0]}
		if got := s.BindsTogether(); got != c.together || r.AffinityTimeout() != c.timeout || (r.Scheduler() == SourceHash) != c.byClientHash {
			t.Errorf("%+v: together %v, timeout %s, scheduler %s", c, got, r.AffinityTimeout(), r.Scheduler())
		}
	}
}
