package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/words"
)

// town makes random Services that get into each other's way.
type town struct {
	*rand.Rand
	config Config
	nodes  []*Node
	cidrs  []netip.Prefix
	states map[ServiceName]ServiceState
}

func newTown(seed uint64) *town {
	t := &town{Rand: rand.New(rand.NewPCG(seed, 0)), states: make(map[ServiceName]ServiceState)}
	t.configure()
	return t
}

func (t *town) chance() bool { return t.IntN(2) == 0 }

func (t *town) configure() {
	t.config = Config{NodeName: "node-1", BesideAnother: t.IntN(4) == 0, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}
	if t.chance() {
		t.config.Families = []Family{IPv4}
	}
	if t.config.AnswerPing = t.chance(); t.chance() {
		t.config.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.4/30")}
	}
	t.nodes = []*Node{{Name: []string{"node-1", "node-2"}[t.IntN(2)]}}
	if t.chance() {
		t.nodes[0].Addresses = []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd00:7::1")}[:1+t.IntN(2)]
	}
	t.cidrs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/112")}[:t.IntN(3)]
	if t.chance() {
		t.config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
		t.move()
	}
}

// move gives the interfaces other addresses, among them ClusterIPs of Services.
func (t *town) move() {
	t.config.InterfaceAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fd00:7::1")}
	for range t.IntN(4) {
		t.config.InterfaceAddresses = append(t.config.InterfaceAddresses, netip.AddrFrom4([4]byte{10, byte(96 + t.IntN(2)), 0, byte(t.IntN(10))}))
	}
}

// service changes one Service, or takes it away, and returns its name.
func (t *town) service() ServiceName {
	n := t.IntN(8)
	name := ServiceName{[]string{"default", "shop"}[n%2], fmt.Sprintf("service-%d", n/2)}
	if t.IntN(4) == 0 {
		delete(t.states, name)
		return name
	}
	s := &Service{
		Name: name, Created: int64(t.IntN(3)),
		InternalPolicy: Policy(t.IntN(2)), ExternalPolicy: Policy(t.IntN(2)),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", n+1))}[t.IntN(2):],
		Ports: []ServicePort{
			{Name: "http", Protocol: TCP, Port: 80, NodePort: uint16(30000 + t.IntN(2))},
			{Name: "dns", Protocol: UDP, Port: 53, NodePort: []uint16{0, 53}[t.IntN(2)]},
		}[:t.IntN(3)],
	}
	s.External = &External{}
	for range t.IntN(3) { // also the same one twice, and the ClusterIP of another
		s.External.ExternalIPs = append(s.External.ExternalIPs, netip.AddrFrom4([4]byte{10, 96, 0, byte(t.IntN(10))}))
	}
	if t.chance() {
		s.HealthCheckNodePort = 32000
	}
	s.Balance = n < 2
	if t.chance() {
		s.Extras = &Extras{Ranges: t.ranges()}
		s.External.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(t.IntN(10))}), netip.MustParseAddr("fd00:7::1")}[:t.IntN(3)]
	}
	slice := &EndpointSlice{
		Namespace: name.Namespace, Name: name.Name, Service: name.Name, Family: Family(IPv4),
		Ports: []EndpointPort{{"http", TCP, 8080}, {"dns", UDP, 53}},
	}
	for i := range t.IntN(4) {
		slice.Hosts = append(slice.Hosts, Host{
			Address: netip.AddrFrom4([4]byte{10, 128, byte(n), byte(i)}), Ready: t.chance(), Serving: true,
			Place: OnNode([]string{"node-1", "node-2"}[t.IntN(2)]),
		})
	}
	t.states[name] = ServiceState{s, []*EndpointSlice{slice}}
	return name
}

// ranges returns some of these ranges, which do not overlap each other, but those of
// other Services.
func (t *town) ranges() []PortRange {
	if t.IntN(6) == 0 {
		return []PortRange{rangeOf(UDP, 1, AllPorts, 0), rangeOf(TCP, 1, AllPorts, 0)}[t.IntN(2):]
	}
	first := uint16(1 + t.IntN(60))
	middle := first + uint16(t.IntN(20))
	all := []PortRange{rangeOf(UDP, first, middle, 0), rangeOf(UDP, middle+1, 100, uint16(t.IntN(2))), rangeOf(TCP, first, 100, 0), rangeOf(TCP, 79, 0, 0)}
	for i := range all {
		all[i].OnNode = t.IntN(4) == 0
	}
	return all[t.IntN(2):][:1+t.IntN(3)]
}

func rangeOf(p Protocol, first, last, target uint16) PortRange {
	if first == last {
		last = 0
	}
	out := PortRange{ServicePort: ServicePort{Protocol: p, Port: first}, Last: last, Target: target}
	out.Name = out.String()
	return out
}

// resolve starts from nothing.
func (t *town) resolve() *Routing {
	s := &Snapshot{Nodes: t.nodes, ServiceCIDRs: t.cidrs}
	for _, state := range t.states {
		s.Services = append(s.Services, state.Service)
		s.Slices = append(s.Slices, state.Slices...)
	}
	return Resolve(s, t.config)
}

func byFrontend(r *Routing) map[Frontend]Route {
	out := make(map[Frontend]Route, len(r.Routes))
	for _, route := range r.Routes {
		out[route.Frontend] = route
	}
	for _, route := range r.Echoes {
		out[Echo(route.Frontend.Address)] = *route
	}
	return out
}

// TestRouter walks through random changes. After each one the router says what
// [Resolve] says of the present state, and the changes that it returned are
// those between the two states. Addresses of interfaces never make every route
// again.
func TestRouter(t *testing.T) {
	moved, echoes, yielding := 0, 0, 0
	for seed := range uint64(20) {
		m, e, y := walk(t, newTown(seed), 200)
		moved, echoes, yielding = moved+m, echoes+e, yielding+y
	}
	if yielding < 20 {
		t.Errorf("only %d addresses yield to NodePorts", yielding)
	}
	if echoes < 100 {
		t.Errorf("only %d addresses answer echo requests", echoes)
	}
	if moved < 100 {
		t.Errorf("only %d frontends changed with the addresses of the node", moved)
	}
}

// checkNames: Services are found by their names, and the words are those of all of them.
func checkNames(t *testing.T, r *Router, states map[ServiceName]ServiceState) {
	t.Helper()
	all, balances := make(map[string][]ServiceName), 0
	services := 0
	for name, s := range states {
		if s.Service == nil {
			continue
		}
		services++
		all[name.Name] = append(all[name.Name], name)
		if s.Service.Balance {
			balances++
		}
		if got := r.Named(name.Namespace, name.Name); len(got) != 1 || got[0] != name {
			t.Fatalf("%s is found as %v", name, got)
		}
	}
	for bare, want := range all {
		got := r.Named("", bare)
		slices.SortFunc(got, ServiceName.Compare)
		slices.SortFunc(want, ServiceName.Compare)
		if !slices.Equal(got, want) {
			t.Fatalf("%s is found as %v, want %v", bare, got, want)
		}
	}
	if got := r.Named("", "absent"); got != nil {
		t.Fatalf("a name of no Service is found as %v", got)
	}
	if got := r.Words(); got != words.Among(services, balances) {
		t.Fatalf("%d of %d are Balances, and the words are %q", balances, services, got)
	}
}

func walk(t *testing.T, town *town, steps int) (moved, echoes, yielding int) {
	t.Helper()
	r := NewRouter()
	r.Configure(town.config, town.nodes, town.cidrs)
	before := make(map[Frontend]Route)
	for step := range steps {
		var changes []RouteChange
		switch town.IntN(20) {
		case 0:
			town.configure()
			changes, _ = r.Configure(town.config, town.nodes, town.cidrs)
		case 1, 2:
			answeredFrom := r.Routing().AnswerFrom
			town.move()
			var all bool
			if changes, all = r.Configure(town.config, town.nodes, town.cidrs); all && maps.Equal(answeredFrom, r.Routing().AnswerFrom) {
				t.Fatalf("step %d: addresses of interfaces make every route again", step)
			}
			moved += len(changes)
		default:
			states := make(map[ServiceName]ServiceState)
			for range 1 + town.IntN(3) {
				name := town.service()
				states[name] = town.states[name]
			}
			if town.chance() { // report more than what changed
				maps.Copy(states, town.states)
			}
			changes = r.SetServices(states)
			if town.IntN(10) == 0 { // after them: the order does not matter
				town.move()
				more, _ := r.Configure(town.config, town.nodes, town.cidrs)
				changes = JoinChanges(changes, more)
			}
		}
		checkRanges(t, r)
		checkNotices(t, r)
		checkNames(t, r, town.states)
		want, got := town.resolve(), r.Routing()
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("step %d: the router says\n%+v\na fresh one\n%+v", step, got, want)
		}
		if _, frontends := r.Len(); frontends != len(want.Routes) {
			t.Fatalf("step %d: %d frontends, want %d", step, frontends, len(want.Routes))
		}
		after := byFrontend(want)
		echoes += len(want.Echoes)
		yielding += len(r.yielding)
		carried := maps.Clone(before)
		for _, c := range changes {
			if old, ok := before[c.Frontend]; ok != (c.Old != nil) || ok && !reflect.DeepEqual(old, *c.Old) {
				t.Fatalf("step %d: %s was %+v before, the change says %+v", step, c.Frontend, old, c.Old)
			}
			if delete(carried, c.Frontend); c.New != nil {
				carried[c.Frontend] = *c.New
			}
		}
		if !reflect.DeepEqual(carried, after) {
			t.Fatalf("step %d: the changes %v lead to\n%v\nwant\n%v", step, changes, slices.Collect(maps.Keys(carried)), slices.Collect(maps.Keys(after)))
		}
		before = after
	}
	return moved, echoes, yielding
}

// checkNotices compares the notices of each Service with those that it has now.
func checkNotices(t *testing.T, r *Router) {
	t.Helper()
	for name := range r.services {
		if got, want := r.reports.by[name], r.noticesOf(name); !slices.Equal(got, want) {
			t.Fatalf("notices of %s are\n%v\nwant\n%v", name, got, want)
		}
	}
}

// checkRanges compares the served ranges with those of the plain algorithm: the first claim
// of all, then the next one that overlaps none before it, and so on.
func checkRanges(t *testing.T, r *Router) {
	t.Helper()
	var all, served []*Route
	for _, s := range r.services {
		for i := range s.routes {
			if s.routes[i].Frontend.IsRange() {
				all = append(all, &s.routes[i])
			}
		}
	}
	slices.SortFunc(all, compareClaims)
	for _, route := range all {
		if !slices.ContainsFunc(served, func(o *Route) bool { return o.Frontend.Overlaps(route.Frontend) }) {
			served = append(served, route)
		}
	}
	n := 0
	for f := range r.winners {
		if f.IsRange() {
			n++
		}
	}
	for _, route := range served {
		if winner := r.winners[route.Frontend]; winner == nil || compareClaims(winner, route) != 0 {
			t.Fatalf("%s is served by %v, want %s", route.Frontend, winner, route.PortName())
		}
	}
	known := 0
	for at, c := range r.ranges.claims {
		if known += c.served.n; c.all.n < c.served.n || c.all.n == 0 || c.left.n+len(c.came) > 0 {
			t.Fatalf("of %v: %d claims, %d served, %d left, %d came", at, c.all.n, c.served.n, c.left.n, len(c.came))
		}
	}
	if n != len(served) || known != n {
		t.Fatalf("%d ranges are served and %d known as such, want %d", n, known, len(served))
	}
}

// TestManyAtOnce: Services that are decided together, on all processors, are decided as one
// after the other.
func TestManyAtOnce(t *testing.T) {
	states := make(map[ServiceName]ServiceState)
	for i := range 3*decideAtOnce + 1 {
		name := ServiceName{"default", fmt.Sprintf("service-%d", i)}
		states[name] = ServiceState{
			&Service{Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
				External: &External{ExternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 99)})}}, HealthCheckNodePort: 32000,
				Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}}},
			[]*EndpointSlice{{Namespace: "default", Service: name.Name, Family: IPv4, Ports: []EndpointPort{{"http", TCP, 8080}},
				Hosts: []Host{{Address: netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), Ready: true}}}},
		}
	}
	broken := ServiceName{"default", "service-5"}
	states[broken] = ServiceState{states[broken].Service, []*EndpointSlice{nil}}
	together, inTurn := NewRouter(), NewRouter()
	changes := together.SetServices(states)
	if n, routes := len(changes), len(together.Routes()); n != routes || routes != len(states)-1+99 {
		t.Errorf("%d changes, %d routes", n, routes)
	}
	for _, c := range changes {
		if c.Old != nil || c.New == nil || c.New != together.winnerOf(c.Frontend) {
			t.Errorf("change %+v, want one to %+v", c, together.winnerOf(c.Frontend))
		}
	}
	for name, s := range states {
		inTurn.SetServices(map[ServiceName]ServiceState{name: s})
	}
	got, want := together.Routing(), inTurn.Routing()
	if !reflect.DeepEqual(got, want) || len(got.Notices) < len(states)-99 || len(got.HealthChecks) == 0 {
		t.Errorf("decided together:\n%d routes, %d notices\nin turn:\n%d routes, %d notices", len(got.Routes), len(got.Notices), len(want.Routes), len(want.Notices))
	}
}

// TestBrokenObject: an unexpected object is left out and reported,
// and the others are served (13.20).
func TestBrokenObject(t *testing.T) {
	r := NewRouter()
	broken := ServiceName{"default", "broken"}
	r.SetServices(map[ServiceName]ServiceState{
		web().Name: {Service: web()},
		broken:     {Service: &Service{Name: broken, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.9")}, Ports: []ServicePort{{Port: 80}}}, Slices: []*EndpointSlice{nil}},
	})
	services, frontends := r.Len()
	if n := r.Notices(); services != 2 || frontends != 4 || len(n) != 1 || n[0].Reason != InternalError || n[0].Object.String() != "Service default/broken" {
		t.Errorf("%d services, %d frontends, notices %v", services, frontends, n)
	}
	r.SetServices(map[ServiceName]ServiceState{broken: {}})
	if n := r.Notices(); len(n) > 0 {
		t.Errorf("notices of a Service that is gone: %v", n)
	}
}

// TestIdentity: the routes of a service port share their choice, and the version of
// the notices changes with them alone.
func TestIdentity(t *testing.T) {
	r := NewRouter()
	s := web()
	s.External = &External{ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}
	set := func(s *Service) uint64 {
		r.SetServices(map[ServiceName]ServiceState{s.Name: {Service: s}})
		return r.NoticesVersion()
	}
	if v := set(s); v != 0 {
		t.Errorf("version %d without a notice", v)
	}
	choices := make(map[PortName]map[*Choice]bool)
	for _, route := range r.Routes() {
		if choices[route.PortName()] == nil {
			choices[route.PortName()] = make(map[*Choice]bool)
		}
		choices[route.PortName()][route.Choice] = true
	}
	for port, of := range choices {
		if len(of) != len(Families) {
			t.Errorf("%s has %d choices in %d families", port, len(of), len(Families))
		}
	}
	rival := *s
	rival.Name.Name = "rival"
	rival.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.96.0.77")}
	first := set(&rival)
	if first == 0 || len(r.Notices()) == 0 {
		t.Fatalf("version %d of notices %v", first, r.Notices())
	}
	if again := set(&rival); again != first {
		t.Errorf("version %d after the same, before it %d", again, first)
	}
	r.SetServices(map[ServiceName]ServiceState{rival.Name: {}})
	if v := r.NoticesVersion(); v == first || len(r.Notices()) > 0 {
		t.Errorf("version %d of notices %v, before it %d", v, r.Notices(), first)
	}
}

// TestServes: 3.29. A frontend is found by its address, and by an address that serves its
// NodePort.
func TestServes(t *testing.T) {
	r := NewRouter()
	r.Configure(Config{NodeName: "node-1", NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		InterfaceAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}}, nil, nil)
	s := web()
	s.Ports[0].NodePort = 30080
	r.SetServices(map[ServiceName]ServiceState{s.Name: {Service: s}})
	for text, want := range map[string]bool{
		"tcp 10.96.0.1:80": true, "tcp [fd00::1]:80": true, "udp 10.96.0.1:53": true, "tcp 192.0.2.1:30080": true,
		"udp 10.96.0.1:80": false, "tcp 10.96.0.1:81": false, "tcp 198.51.100.1:30080": false, "tcp 192.0.2.1:80": false, "tcp 10.0.0.1:80": false,
	} {
		protocol, address, _ := strings.Cut(text, " ")
		p, _ := ParseProtocol(protocol)
		a := netip.MustParseAddrPort(address)
		if got := r.Serves(Frontend{Address: a.Addr(), Port: a.Port(), Protocol: p}); (got != nil) != want {
			t.Errorf("%s: %v, want a route: %t", text, got, want)
		}
	}
}
