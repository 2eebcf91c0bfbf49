package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// cpuTime returns the least CPU time that a function takes of its thread, in some attempts.
func cpuTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			panic(err)
		}
		return time.Duration(t.Nano())
	}
	best := time.Hour
	for range 3 {
		start := now()
		do()
		best = min(best, now()-start)
	}
	return best
}

// rivalWithRanges returns the k-th of some Services on an address, with many ranges of ports
// that overlap those of the others, and which is older than those with higher numbers.
func rivalWithRanges(k int, address netip.Addr) ServiceState {
	s := ServiceState{Service: &Service{
		Name: ServiceName{"default", fmt.Sprintf("rival-%03d", k)}, Created: int64(1 + k),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(k >> 8), byte(k)})},
		External:   &External{ExternalIPs: []netip.Addr{address}}, Extras: &Extras{},
	}}
	for i := range budget.PortRanges {
		first := uint16(1000 + i*60 + k%40)
		s.Service.Extras.Ranges = append(s.Service.Extras.Ranges, rangeOf(UDP, first, first+30, 0))
	}
	return s
}

// TestRivalRangesCost: 4.95, 13.15. A change of one Service among many whose ranges overlap costs about as
// much as among others whose ranges do not, and there is one notice for each Service that
// loses its ranges.
func TestRivalRangesCost(t *testing.T) {
	const services, most = 40, 8
	at := func(address func(int) netip.Addr) (*Router, map[string]time.Duration) {
		r, all := NewRouter(), make(map[ServiceName]ServiceState)
		for k := range services {
			s := rivalWithRanges(k, address(k))
			all[s.Service.Name] = s
		}
		r.SetServices(all)
		took := make(map[string]time.Duration)
		for what, k := range map[string]int{"the oldest": 0, "one in the middle": services / 2, "the youngest": services - 1} {
			s := rivalWithRanges(k, address(k))
			took[what] = cpuTime(func() { r.SetServices(map[ServiceName]ServiceState{s.Service.Name: s}) })
		}
		other := rivalWithRanges(services, netip.MustParseAddr("203.0.113.200"))
		took["another"] = cpuTime(func() { r.SetServices(map[ServiceName]ServiceState{other.Service.Name: other}) })
		return r, took
	}
	alone, without := at(func(k int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(k)}) })
	rivals, with := at(func(int) netip.Addr { return netip.MustParseAddr("203.0.113.1") })
	for what, d := range with {
		fmt.Fprintf(t.Output(), "%s changes: %s, without rivals %s\n", what, d, without[what])
		if d > most*without[what] {
			t.Errorf("a change of %s takes %s of CPU time, and %s if no ranges overlap", what, d, without[what])
		}
	}
	if n := len(alone.Notices()); n > 0 {
		t.Errorf("%d notices without rivals", n)
	}
	const want = "1024 ranges of ports on 203.0.113.1 (external IP) are not served: they overlap ranges of Service default/rival-000"
	if n := rivals.Notices(); len(n) > services || !strings.HasPrefix(n[0].Message, want) {
		t.Errorf("%d notices, the first one %v", len(n), n[0])
	}
	oldest, before := rivalWithRanges(0, netip.MustParseAddr("203.0.113.1")), rivals.Notices()
	rivals.SetServices(map[ServiceName]ServiceState{oldest.Service.Name: {}})
	rivals.SetServices(map[ServiceName]ServiceState{oldest.Service.Name: oldest})
	if after := rivals.Notices(); !reflect.DeepEqual(after, before) {
		t.Errorf("%d notices, and %d after the oldest Service left and returned", len(before), len(after))
	}
}

// TestFewConflicts: 4.95. Three ports are reported one by one; more are counted, and so are
// addresses.
func TestFewConflicts(t *testing.T) {
	for _, c := range []struct {
		ports, addresses, want int
		last                   string
	}{
		{3, 1, 3, `tcp 203.0.113.0:1002 (external IP of port "p2") is served by Service default/rival-000, not by this one`},
		{4, 1, 1, "4 ports on 203.0.113.0 (external IP) are served by Service default/rival-000, not by this one"},
		{4, 2, 2, "4 ports on 203.0.113.1 (external IP) are served by Service default/rival-000, not by this one"},
		{1, budget.ConflictAddresses + 2, budget.ConflictAddresses + 1, ""},
	} {
		r := NewRouter()
		for k := range 2 {
			s := rivalWithRanges(k, netip.Addr{})
			s.Service.Extras, s.Service.External.ExternalIPs = nil, nil
			for i := range c.addresses {
				s.Service.External.ExternalIPs = append(s.Service.External.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
			}
			for i := range c.ports {
				s.Service.Ports = append(s.Service.Ports, ServicePort{Name: fmt.Sprint("p", i), Protocol: TCP, Port: uint16(1000 + i)})
			}
			setOn(r, s)
		}
		n := r.Notices()
		if len(n) != c.want || c.last != "" && n[len(n)-1].Message != c.last {
			t.Errorf("%d ports on %d addresses: notices %v", c.ports, c.addresses, n)
		}
		if c.last == "" && !slices.ContainsFunc(n, func(n Notice) bool {
			return n.Message == "frontends on 2 more addresses are served by others, not by this one"
		}) {
			t.Errorf("%d addresses: notices %v", c.addresses, n)
		}
	}
}

// TestRivalPortsCost is the same for exact ports.
func TestRivalPortsCost(t *testing.T) {
	const services, ports, most = 100, 500, 8
	state := func(k int, address netip.Addr) ServiceState {
		s := rivalWithRanges(k, address)
		s.Service.Extras = nil
		for i := range ports {
			s.Service.Ports = append(s.Service.Ports, ServicePort{Name: fmt.Sprint("p", i), Protocol: TCP, Port: uint16(1000 + i)})
		}
		return s
	}
	at := func(address func(int) netip.Addr) (*Router, time.Duration) {
		r, all := NewRouter(), make(map[ServiceName]ServiceState)
		for k := range services {
			s := state(k, address(k))
			all[s.Service.Name] = s
		}
		r.SetServices(all)
		s := state(0, address(0))
		return r, cpuTime(func() { r.SetServices(map[ServiceName]ServiceState{s.Service.Name: s}) })
	}
	_, without := at(func(k int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(k)}) })
	rivals, with := at(func(int) netip.Addr { return netip.MustParseAddr("203.0.113.1") })
	fmt.Fprintf(t.Output(), "%s, without rivals %s\n", with, without)
	if with > most*without {
		t.Errorf("a change takes %s of CPU time, and %s without rivals", with, without)
	}
	const want = "500 ports on 203.0.113.1 (external IP) are served by Service default/rival-000, not by this one"
	if n := rivals.Notices(); len(n) != services-1 || n[0].Message != want {
		t.Errorf("%d notices, the first one %v", len(n), n[0])
	}
}

// TestClaims compares a treap with a list.
func TestClaims(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	var c claims
	var list []*Route
	service := &Service{}
	for step := range 3000 {
		if len(list) == 0 || rnd.IntN(5) < 3 {
			first := uint16(1 + rnd.IntN(500))
			f := Frontend{Port: first, Last: first + uint16(rnd.IntN(100))}
			route := &Route{Frontend: f, Service: service, Port: &ServicePort{Name: fmt.Sprint(rnd.IntN(3))}, Choice: &Choice{}}
			c.add(route)
			list = append(list, route)
		} else {
			i := rnd.IntN(len(list))
			if !c.remove(list[i]) {
				t.Fatalf("step %d: %s is not there", step, list[i].Frontend)
			}
			list = append(list[:i], list[i+1:]...)
		}
		asked := Frontend{Port: uint16(rnd.IntN(600)), Last: uint16(rnd.IntN(600))}
		n := 0
		for _, route := range list {
			if route.Frontend.Port <= asked.lastPort() && asked.Port <= route.Frontend.lastPort() {
				n++
			}
		}
		var before *Route
		for route := range c.eachOverlapping(asked) {
			if n--; before != nil && byPorts.compare(before, route) > 0 {
				t.Fatalf("step %d: %s comes before %s", step, before.Frontend, route.Frontend)
			}
			before = route
		}
		if n != 0 || c.n != len(list) {
			t.Fatalf("step %d: %d too few of %d, which are %d", step, n, len(list), c.n)
		}
	}
}
