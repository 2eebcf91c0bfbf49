package model

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/steer"
)

// FuzzRouter walks through changes as TestRouter does, where the bytes lead.
func FuzzRouter(f *testing.F) {
	steer.Seed(f, 0, 20, 100, 400, 1000)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, left := steer.New(data)
		town := &town{Rand: r, states: make(map[ServiceName]ServiceState)}
		town.configure()
		walk(t, town, min(left.Left()/10, 100))
	})
}

// FuzzChoose compares with an oracle that says what section 3 says, endpoint by
// endpoint.
func FuzzChoose(f *testing.F) {
	steer.Seed(f, 0, 8, 30, 100)
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, left := steer.New(data)
		node := &Node{Name: pick(r, "n1", ""), Zone: pick(r, "za", "")}
		var hosts []Host
		for left.Left() > 0 && len(hosts) < 40 {
			hosts = append(hosts, Host{
				Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(len(hosts))}),
				Ready:   r.IntN(2) == 0, Serving: r.IntN(2) == 0, Terminating: r.IntN(2) == 0, Drain: r.IntN(4) == 0,
				Failing: r.IntN(2) == 0, Priority: uint8(max(0, r.IntN(5)-2)), Weight: uint16(r.IntN(3)),
				Place: NewPlace(pick(r, "n1", "n2", ""), pick(r, "za", "zb", ""), hint(r, "za", "zb", ""), hint(r, "n1", "n2", "")),
			})
		}
		var all []Endpoint
		for i := range hosts {
			all = append(all, Endpoint{Host: &hosts[i], Port: 80})
		}
		before := slices.Clone(all)
		s := &Service{Extras: &Extras{}}
		if r.IntN(2) == 0 {
			s.Check = &Check{AllFailing: AllFailing(r.IntN(2))}
		}
		if r.IntN(2) == 0 {
			s.Extras.ZoneFloor = uint32(1 + r.IntN(100))
		}
		got, want := Choose(s, all, node), choose(all, node, s.Check != nil && s.Check.AllFailing == RejectAll, s.Extras.ZoneFloor)
		if fmt.Sprint(addresses(got.Cluster), addresses(got.Local), addresses(got.Serving)) != fmt.Sprint(addresses(want.Cluster), addresses(want.Local), addresses(want.Serving)) {
			t.Errorf("node %+v, hosts %+v: chosen are %v %v %v, want %v %v %v", *node, hosts,
				addresses(got.Cluster), addresses(got.Local), addresses(got.Serving), addresses(want.Cluster), addresses(want.Local), addresses(want.Serving))
		}
		if !slices.Equal(all, before) {
			t.Error("the list of endpoints was changed")
		}
		for _, p := range []Policy{PolicyCluster, PolicyLocal} {
			checkDecision(t, want, p, got.Decide(p))
		}
	})
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// hint returns up to two of the names, the empty one included: hints may say
// anything.
func hint(r *rand.Rand, of ...string) []string {
	var out []string
	for range r.IntN(3) {
		out = append(out, pick(r, of...))
	}
	return out
}

func addresses(all []Endpoint) []string {
	out := []string{}
	for _, e := range all {
		out = append(out, e.Address().String())
	}
	return out
}

// choose is section 3, written set by set. Drained endpoints are as if they were not
// listed, but serve the connections they have (3.21).
func choose(all []Endpoint, node *Node, reject bool, floor uint32) *Choice {
	c := &Choice{}
	listed := slices.DeleteFunc(slices.Clone(all), func(e Endpoint) bool { return e.Host.Drain })
	local := slices.DeleteFunc(slices.Clone(listed), func(e Endpoint) bool { return !isHere(e, node) })
	c.Cluster = hinted(group(listed, reject), node, floor)
	c.Local = group(local, reject) // 3.7
	passes := slices.ContainsFunc(listed, func(e Endpoint) bool {
		return !e.Host.Failing && (e.Host.Ready || e.Host.Serving && e.Host.Terminating)
	})
	for _, e := range all {
		if e.Host.Serving && !(e.Host.Failing && (passes || reject)) { // 9.4, 3.22
			c.Serving = append(c.Serving, e)
		}
	}
	return c
}

// group returns the first of these groups that has an endpoint, without those of later
// priorities (3.23): ready ones (3.4), terminating ones (3.5), then the same with those
// whose health check fails (3.22), unless the check rejects connections then.
func group(all []Endpoint, reject bool) []Endpoint {
	for i, of := range []func(h *Host) bool{
		func(h *Host) bool { return h.Ready && !h.Failing },
		func(h *Host) bool { return h.Serving && h.Terminating && !h.Failing },
		func(h *Host) bool { return h.Ready },
		func(h *Host) bool { return h.Serving && h.Terminating },
	} {
		if reject && i > 1 {
			return nil
		}
		for priority := range 10 {
			chosen := slices.DeleteFunc(slices.Clone(all), func(e Endpoint) bool { return !of(e.Host) || int(e.Host.Priority) != priority })
			if len(chosen) > 0 {
				return chosen
			}
		}
	}
	return nil
}

// hinted applies the topology hints and the zone floor to a group.
func hinted(all []Endpoint, node *Node, floor uint32) []Endpoint {
	nodeHints, zoneHints := true, true // every one has such a hint
	thisNode, thisZone := false, false // some one names it
	for _, e := range all {
		nodeHints = nodeHints && len(e.Host.Place.ForNodes()) > 0
		zoneHints = zoneHints && len(e.Host.Place.ForZones()) > 0
		thisNode = thisNode || node.Name != "" && slices.Contains(e.Host.Place.ForNodes(), node.Name)
		thisZone = thisZone || node.Zone != "" && slices.Contains(e.Host.Place.ForZones(), node.Zone)
	}
	isOwn := func(e Endpoint) bool { // 3.61
		if zoneHints && thisZone {
			return slices.Contains(e.Host.Place.ForZones(), node.Zone)
		}
		return e.Host.Place.Zone() == node.Zone || isHere(e, node)
	}
	own, total := 0, 0
	for _, e := range all {
		weight := int(max(1, e.Host.Weight))
		if total += weight; isOwn(e) {
			own += weight
		}
	}
	return slices.DeleteFunc(all, func(e Endpoint) bool {
		switch {
		case !e.Host.Ready: // 3.5
			return false
		case nodeHints && thisNode: // 3.11
			return !slices.Contains(e.Host.Place.ForNodes(), node.Name)
		case floor > 0 && node.Zone != "":
			return !isOwn(e) && 100*own >= int(floor)*total
		case zoneHints && thisZone: // 3.12
			return !slices.Contains(e.Host.Place.ForZones(), node.Zone)
		}
		return false
	})
}

// isHere reports whether an endpoint is on the node; one without a node is
// nowhere (2.15).
func isHere(e Endpoint, node *Node) bool {
	return e.Host.Place.Node() != "" && e.Host.Place.Node() == node.Name
}

// checkDecision: 3.8.
func checkDecision(t *testing.T, c *Choice, p Policy, got Decision) {
	t.Helper()
	set := c.Cluster
	if p == PolicyLocal {
		set = c.Local
	}
	want := Drop
	switch {
	case len(set) > 0:
		want = Forward
	case len(c.Cluster) == 0:
		want = Reject
	}
	if got.Verdict != want || want == Forward && !slices.Equal(addresses(got.Endpoints), addresses(set)) || want != Forward && len(got.Endpoints) > 0 {
		t.Errorf("policy %s decides %s for %v, want %s for %v", p, got.Verdict, addresses(got.Endpoints), want, addresses(set))
	}
}

// FuzzEndpoints: whatever slices say, of each address and port there is one
// endpoint of the service port asked for, and neither the order of slices nor
// that of hosts matters (2.6, 2.17, 2.18).
func FuzzEndpoints(f *testing.F) {
	steer.Seed(f, 0, 20, 60, 200)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, left := steer.New(data)
		var all []*EndpointSlice
		for left.Left() > 0 && len(all) < 10 {
			all = append(all, someSlice(r))
		}
		port := PortName{ServiceName{"default", "web"}, "http", TCP}
		for _, family := range Families {
			got := Endpoints(port, family, all)
			if !slices.IsSortedFunc(got, func(a, b Endpoint) int { return a.Address().Compare(b.Address()) }) {
				t.Errorf("not sorted: %v", addresses(got))
			}
			want := listed(port, family, all)
			for i, e := range got {
				if records := want[e.Address()]; records == nil || i > 0 && got[i-1].Address() == e.Address() {
					t.Errorf("%s is not in the slices, or comes twice", e.Address())
				} else if e.Host.Terminating && slices.ContainsFunc(records, func(h *Host) bool { return !h.Terminating }) {
					t.Errorf("%s: a terminating record counts before one that is not", e.Address())
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d endpoints, want %d", len(got), len(want))
			}
			if turned := Endpoints(port, family, reversed(all)); !reflect.DeepEqual(describe(turned), describe(got)) {
				t.Errorf("the order matters: %v, %v", describe(got), describe(turned))
			}
		}
	})
}

func someSlice(r *rand.Rand) *EndpointSlice {
	s := &EndpointSlice{Namespace: "default", Service: "web", Family: Families[r.IntN(2)]}
	for range r.IntN(3) {
		s.Ports = append(s.Ports, EndpointPort{pick(r, "http", ""), Protocols[r.IntN(2)], uint16(80 + r.IntN(2))})
	}
	for range r.IntN(4) {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(3))})
		if s.Family == IPv6 {
			a = netip.AddrFrom16([16]byte{0xfd, 15: byte(r.IntN(3))})
		}
		s.Hosts = append(s.Hosts, Host{
			Address: a, Ready: r.IntN(2) == 0, Serving: r.IntN(2) == 0, Terminating: r.IntN(2) == 0, Drain: r.IntN(4) == 0,
			Failing: r.IntN(3) == 0, Priority: uint8(r.IntN(2)),
			Place: NewPlace(pick(r, "n1", ""), pick(r, "za", ""), hint(r, "za", "zb"), hint(r, "n1", "n2")), Weight: uint16(r.IntN(3)),
		})
	}
	return s
}

// listed returns all records of each address and port.
func listed(port PortName, f Family, all []*EndpointSlice) map[netip.AddrPort][]*Host {
	out := make(map[netip.AddrPort][]*Host)
	for _, s := range all {
		for _, p := range s.Ports {
			for i := range s.Hosts {
				if s.Family == f && p.Name == port.Port && p.Protocol == port.Protocol {
					a := netip.AddrPortFrom(s.Hosts[i].Address, p.Port)
					out[a] = append(out[a], &s.Hosts[i])
				}
			}
		}
	}
	return out
}

func reversed(all []*EndpointSlice) []*EndpointSlice {
	var out []*EndpointSlice
	for _, s := range slices.Backward(all) {
		turned := *s
		turned.Hosts = slices.Clone(s.Hosts)
		slices.Reverse(turned.Hosts)
		out = append(out, &turned)
	}
	return out
}

func describe(all []Endpoint) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s %+v\n", e.Address(), *e.Host)
	}
	return b.String()
}

// FuzzHealthCheck: 3.21, 10.20. What load balancers hear is the number of ready
// endpoints that clients reach here on any port that someSlice gives to slices, whichever of
// them the Service has: none exactly when there is none, or when all of them fail their
// health check and other nodes have better ones.
func FuzzHealthCheck(f *testing.F) {
	steer.Seed(f, 0, 20, 60, 200, 400)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, left := steer.New(data)
		var all []*EndpointSlice
		for left.Left() > 0 && len(all) < 10 {
			s := someSlice(r)
			s.Name = fmt.Sprint(len(all))
			all = append(all, s)
		}
		s := web()
		s.Ports = append(s.Ports, ServicePort{Protocol: TCP, Port: 81})
		s.External = &External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}}
		complete := *s
		complete.Ports = nil
		for i, p := range Protocols[:2] {
			complete.Ports = append(complete.Ports, ServicePort{Name: "http", Protocol: p, Port: uint16(80 + 2*i)}, ServicePort{Protocol: p, Port: uint16(81 + 2*i)})
		}
		resolve := func(s *Service) *Routing {
			return Resolve(&Snapshot{Services: []*Service{s}, Slices: all}, Config{NodeName: "n1"})
		}
		reached := map[Family]map[netip.Addr]bool{IPv4: {}, IPv6: {}}
		for _, route := range resolve(&complete).Routes {
			if route.Kind != LoadBalancerIP {
				continue
			}
			elsewhere := slices.ContainsFunc(route.Choice.Cluster, func(e Endpoint) bool { return !e.Host.Failing })
			for _, e := range route.Outside().Endpoints {
				if e.Host.Ready && !(e.Host.Failing && elsewhere) {
					reached[FamilyOf(e.Host.Address)][e.Host.Address] = true
				}
			}
		}
		checks := resolve(s).HealthChecks
		for _, family := range Families {
			if got, want := checks[0].Endpoints[family], len(reached[family]); got != want {
				t.Errorf("%s: %d endpoints, clients reach %d of", family, got, want)
				for _, slice := range all {
					t.Errorf("%+v", *slice)
				}
			}
		}
	})
}
