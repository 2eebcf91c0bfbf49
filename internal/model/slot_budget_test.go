package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// tabled returns the i-th Service, which is as old as its number says, with a table for
// each of its ports.
func tabled(i, ports int, size uint32) ServiceState {
	s := &Service{
		Name: ServiceName{"default", fmt.Sprint("service-", i)}, Created: int64(1000 - i),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		Scheduler:  Maglev, Extras: &Extras{MaglevSize: size},
	}
	slice := &EndpointSlice{Namespace: "default", Service: s.Name.Name, Family: IPv4}
	for n := range 2 {
		slice.Hosts = append(slice.Hosts, Host{Address: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Ready: true, Serving: true})
	}
	for p := range ports {
		name := fmt.Sprint("p", p)
		s.Ports = append(s.Ports, ServicePort{Name: name, Protocol: TCP, Port: uint16(8000 + p)})
		slice.Ports = append(slice.Ports, EndpointPort{Name: name, Protocol: TCP, Port: 8080})
	}
	return ServiceState{Service: s, Slices: []*EndpointSlice{slice}}
}

// sizesOf returns the number of slots of the tables of each Service; zero: it has another
// scheduler. All frontends of a Service have the same.
func sizesOf(t *testing.T, r *Router) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for route := range r.Each {
		size := 0
		if route.Scheduler().IsMaglev() {
			size = route.Service.MaglevSize(2)
		}
		name := route.Service.Name.Name
		if was, ok := out[name]; ok && was != size {
			t.Fatalf("%s has tables of %d and of %d slots", name, was, size)
		}
		out[name] = size
	}
	return out
}

func noticesOf(notices []Notice, reason Reason) (out []string) {
	for _, n := range notices {
		if n.Reason == reason {
			out = append(out, n.String())
		}
	}
	return out
}

// TestSlotsOfService: 3.60. The tables of all frontends of a Service share its budget, and
// what it does not get is one notice, with what to do.
func TestSlotsOfService(t *testing.T) {
	addresses := func(s string) (out []netip.Addr) {
		for _, a := range strings.Fields(s) {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for name, c := range map[string]struct {
		ports, asked int
		change       func(*Service)
		size         int
		want         string // part of the notice; empty: none
	}{
		"default":       {16, 0, nil, 1021, ""},
		"many ports":    {17, 0, nil, 509, "Service default/service-1: 17 tables of 1021 slots exceed the 16384 of a Service: each has 509; annotate it with nftproxy.dev/maglev-table-size=509, or split the Service"},
		"large":         {1, 131071, nil, 16381, "a table of 131071 slots exceeds the 16384 of a Service: each has 16381"},
		"two":           {2, 16381, nil, 8191, "2 tables of 16381 slots"},
		"largest alone": {1, 16381, nil, 16381, ""},
		"the smallest":  {65, 0, nil, 251, "each has 251"},
		"none":          {66, 251, nil, 0, "66 tables of 251 slots exceed the 16384 of a Service: the scheduler is source-hash; split the Service"},
		"balance":       {17, 0, func(s *Service) { s.Balance = true }, 509, "set maglevTableSize: 509, or split"},
		"addresses": {2, 4093, func(s *Service) {
			s.External = &External{ExternalIPs: addresses("192.0.2.1 192.0.2.2 2001:db8::1"), LoadBalancerIPs: addresses("192.0.2.3")}
		}, 2039, "8 tables of 4093"},
		"families":   {2, 8191, func(s *Service) { s.ClusterIPs = addresses("10.96.0.1 fd00::1") }, 4093, "4 tables of 8191"},
		"node ports": {1, 8191, func(s *Service) { s.Ports[0].NodePort = 30000 }, 8191, ""},
		"policy Local": {1, 8191, func(s *Service) { // which has a table for clients outside
			s.Ports[0].NodePort, s.ExternalPolicy = 30000, PolicyLocal
		}, 4093, "3 tables of 8191"},
		"ranges": {1, 8191, func(s *Service) {
			s.Extras.Ranges = []PortRange{{ServicePort: ServicePort{Name: "1-9/tcp", Protocol: TCP, Port: 1}, Last: 9}, {ServicePort: ServicePort{Name: "20-29/tcp", Protocol: TCP, Port: 20}, Last: 29}}
		}, 4093, "3 tables of 8191"},
		"single ports of an annotation": {1, 8191, func(s *Service) { // which a client can be bound at
			s.AffinityTimeout = time.Hour
			s.Extras.Ranges = []PortRange{{ServicePort: ServicePort{Name: "1/tcp", Protocol: TCP, Port: 1}, Target: 9}, {ServicePort: ServicePort{Name: "2/tcp", Protocol: TCP, Port: 2}, Target: 9}}
		}, 4093, "3 tables of 8191"},
		"twice": {1, 8191, func(s *Service) {
			s.External = &External{ExternalIPs: addresses("10.96.0.1 192.0.2.1 192.0.2.1"), LoadBalancerIPs: addresses("192.0.2.1")}
		}, 8191, ""},
		"load balancer": {2, 8191, func(s *Service) { // without a ClusterIP
			s.ClusterIPs, s.NoClusterIP, s.External = nil, true, &External{LoadBalancerIPs: addresses("192.0.2.3")}
		}, 8191, ""},
		"other scheduler": {66, 251, func(s *Service) { s.Scheduler = RoundRobin }, 0, ""},
	} {
		r, state := NewRouter(), tabled(1, c.ports, uint32(c.asked))
		r.Configure(Config{NodeName: "node-1"}, []*Node{{Name: "node-1", Addresses: addresses("192.0.2.99")}}, nil)
		if c.change != nil {
			c.change(state.Service)
		}
		asked := state.Service.Extra().MaglevSize
		r.SetServices(map[ServiceName]ServiceState{state.Service.Name: state})
		notices := noticesOf(r.Notices(), ManySlots)
		if got := sizesOf(t, r)["service-1"]; got != c.size || len(notices) > 1 || (c.want == "") != (len(notices) == 0) || !strings.Contains(strings.Join(notices, ""), c.want) {
			t.Errorf("%s: %d slots and the notices %q, want %d and %q", name, got, notices, c.size, c.want)
		}
		if v := r.View(state.Service.Name); v.Scheduler.IsMaglev() != (c.size > 0) || c.size > 0 && v.Service.MaglevSize(2) != c.size {
			t.Errorf("%s: the view has %s with %d slots", name, v.Scheduler, v.Service.MaglevSize(2))
		}
		if state.Service.Extra().MaglevSize != asked {
			t.Errorf("%s: the object was changed", name)
		}
	}
}

// TestRelayHasNoTable: 3.60. So a relay with many ports keeps the scheduler that relays have.
func TestRelayHasNoTable(t *testing.T) {
	r, state := NewRouter(), tabled(1, 66, 251)
	state.Service.Scheduler, state.Service.Extras.Relay = DefaultScheduler, PlainRelay
	r.Configure(Config{NodeName: "node-1", Scheduler: Maglev}, nil, nil)
	r.SetServices(map[ServiceName]ServiceState{state.Service.Name: state})
	for route := range r.Each {
		if got := route.Scheduler(); got != RoundRobin {
			t.Fatalf("%v has the scheduler %s", route.Frontend, got)
		}
	}
	if got := r.Notices(); len(got) != 0 {
		t.Errorf("notices: %v", got)
	}
}

// TestFewSlotsForEndpoints: 3.60, 3.47. If the shares of endpoints differ as well, that is
// in the same notice.
func TestFewSlotsForEndpoints(t *testing.T) {
	r, state := NewRouter(), tabled(1, 17, 0)
	for i := range 60 {
		state.Slices[0].Hosts = append(state.Slices[0].Hosts, Host{Address: netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}), Ready: true, Serving: true})
	}
	r.SetServices(map[ServiceName]ServiceState{state.Service.Name: state})
	if got := r.Notices(); len(got) != 1 || got[0].Reason != ManySlots || !strings.HasSuffix(got[0].Message, "; 509 slots for 62 endpoints: shares differ by up to 12 %") {
		t.Errorf("notices: %v", got)
	}
}

// TestSlotsOfNode: 3.60. The oldest Services have their tables, one has what is left, and
// the youngest have none. What a Service gives back goes to the next ones.
func TestSlotsOfNode(t *testing.T) {
	r, all := NewRouter(), make(map[ServiceName]ServiceState)
	const services = 65 // 61 of which fit
	for i := range services {
		s := tabled(i, 4, 4093)
		all[s.Service.Name] = s
	}
	r.SetServices(all)
	check := func(when string, want map[string]int) {
		t.Helper()
		got := sizesOf(t, r)
		for i := range services {
			name := fmt.Sprint("service-", i)
			size, smaller := want[name]
			if s := all[ServiceName{"default", name}].Service; s == nil {
				continue
			}
			if !smaller {
				size = 4093
			}
			if got[name] != size {
				t.Errorf("%s: %s has %d slots, want %d", when, name, got[name], size)
			}
		}
		if n := len(noticesOf(r.Notices(), ManySlots)); n != len(want) {
			t.Errorf("%s: %d notices, want %d", when, n, len(want))
		}
	}
	// 1,000,000 - 61 * 4 * 4093 = 1308, which is 4 * 327.
	check("at first", map[string]int{"service-3": 251, "service-2": 0, "service-1": 0, "service-0": 0})
	if got := noticesOf(r.Notices(), ManySlots); !slices.Equal(got[2:], []string{
		"Service default/service-2: 4 tables of 4093 slots exceed what older Services leave of 1000000: the scheduler is source-hash; ask for smaller tables in these",
		"Service default/service-3: 4 tables of 4093 slots exceed what older Services leave of 1000000: each has 251; annotate it with nftproxy.dev/maglev-table-size=251, or ask for smaller tables in these",
	}) {
		t.Errorf("the notices are %q", got)
	}

	endpoints := tabled(40, 4, 4093)
	endpoints.Slices[0].Hosts = endpoints.Slices[0].Hosts[:1]
	if n := len(r.SetServices(map[ServiceName]ServiceState{endpoints.Service.Name: endpoints})); n != 4 {
		t.Errorf("with an endpoint of one Service, %d frontends change, want its 4", n)
	}

	name := ServiceName{"default", "service-64"}
	all[name] = ServiceState{}
	changes := r.SetServices(map[ServiceName]ServiceState{name: {}})
	check("without the oldest", map[string]int{"service-2": 251, "service-1": 0, "service-0": 0})
	if len(changes) != 3*4 {
		t.Errorf("%d frontends change, want those of three Services", len(changes))
	}
	smaller := tabled(63, 4, 251)
	all[smaller.Service.Name] = smaller
	r.SetServices(map[ServiceName]ServiceState{smaller.Service.Name: smaller})
	if got := sizesOf(t, r)["service-63"]; got != 251 {
		t.Errorf("a Service that asks for 251 slots has %d", got)
	}
}

// TestSlotsFollow: 3.60. Which sizes Services get depends on the Services, not on the order
// in which they come and go, nor on the node.
func TestSlotsFollow(t *testing.T) {
	rnd, r := rand.New(rand.NewPCG(1, 0)), NewRouter()
	other := Config{NodeName: "other", Families: []Family{IPv4}, NoExternalIPs: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	current, most := make(map[ServiceName]ServiceState), 0
	for range 30 {
		changed := make(map[ServiceName]ServiceState)
		for range 40 {
			s := tabled(rnd.IntN(160), 1+rnd.IntN(20), MaglevSizes[rnd.IntN(len(MaglevSizes))])
			name := s.Service.Name
			if rnd.IntN(4) == 0 {
				s.Service.ClusterIPs = append(s.Service.ClusterIPs, netip.AddrFrom16([16]byte{0xfd, 15: byte(rnd.IntN(200))}))
				s.Service.External = &External{ExternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(20))})}}
			}
			if rnd.IntN(4) == 0 {
				s.Service = nil
			}
			changed[name], current[name] = s, s
		}
		r.SetServices(changed)
		fresh, elsewhere := NewRouter(), NewRouter()
		fresh.SetServices(current)
		if !reflect.DeepEqual(fresh.Routing(), r.Routing()) {
			t.Fatalf("sizes are %v, and in a new router %v", sizesOf(t, r), sizesOf(t, fresh))
		}
		elsewhere.SetServices(current)
		elsewhere.Configure(other, nil, nil)
		if got, want := sizesOf(t, elsewhere), sizesOf(t, r); !reflect.DeepEqual(got, want) {
			t.Fatalf("sizes on another node are %v, want %v", got, want)
		}
		for name := range r.slots.reduced {
			if r.slots.reduced[name] == 0 {
				most++
			}
		}
	}
	if most == 0 {
		t.Error("there was always room for tables")
	}
}
