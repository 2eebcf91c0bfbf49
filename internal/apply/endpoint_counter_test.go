package apply

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// use is a frontend and an endpoint that its connections go to.
type use struct {
	model.Frontend
	endpoint netip.AddrPort
}

// tally makes connections, and counts them by the server that answers.
func (c *counted) tally(seen map[use]uint64, from *netlab.Host, f model.Frontend, n int) {
	c.t.Helper()
	byName := make(map[string]*netlab.Host)
	for _, p := range c.lab.Pods {
		byName[p.Name] = p
	}
	for range n {
		a, err := from.Ask(f.Protocol.String(), netip.AddrPortFrom(f.Address, f.Port), 0)
		if err != nil {
			c.t.Fatal(err)
		}
		seen[use{f, netip.AddrPortFrom(byName[a.Name].Address(model.FamilyOf(f.Address)), 8080)}]++
	}
}

// expectEndpoints compares all counters of endpoints that are not 0.
func (c *counted) expectEndpoints(want map[use]uint64) {
	c.t.Helper()
	counts, err := c.counters().EndpointCounts([]model.Frontend{web4, web6, dns, empty, c.nodePort(), ranged(web4), ranged(web6)})
	if err != nil {
		c.t.Fatal(err)
	}
	got := make(map[use]uint64)
	for _, n := range counts {
		if n.Connections > 0 {
			got[use{n.Frontend, n.Endpoint}] += n.Connections
		}
	}
	if !maps.Equal(got, want) {
		c.t.Errorf("counted %v\nservers saw %v", got, want)
	}
}

// ranged returns a range of ports on the address of a frontend.
func ranged(f model.Frontend) model.Frontend {
	f.Port, f.Last = 9000, 9009
	return f
}

// TestEndpointCounters: the counters say what the servers saw, for endpoints with
// several slots too, and for clients outside of the cluster that have endpoints of
// their own (11.23).
func TestEndpointCounters(t *testing.T) {
	c := newCounted(t, 3)
	s := c.snapshot(3)
	s.Services[0].AffinityTimeout = 0
	s.Services[0].Extras = &model.Extras{Ranges: []model.PortRange{workload.PortRange(model.TCP, 9000, 9009, 8080)}}
	for i := range s.Slices {
		s.Slices[i].Hosts[0].Weight = 20                     // more slots than are asked for in a row
		s.Slices[i].Hosts[2].Place = model.OnNode("another") // unless a client is outside
	}
	config := model.Config{Counters: true, EndpointCounters: true}
	mustApply(t, c.applier, c.rulesOf(s, config))
	seen := make(map[use]uint64)
	c.tally(seen, c.lab.Client, web4, 50)
	c.tally(seen, c.lab.Client, web6, 25)
	c.tally(seen, c.lab.Client, dns, 25)
	c.tally(seen, c.lab.Client, ranged(web4), 25)
	c.tally(seen, c.lab.Client, ranged(web6), 25)
	c.tally(seen, c.lab.Client, c.nodePort(), 30)
	c.tally(seen, c.lab.Pods[0], c.nodePort(), 4)
	if len(seen) < 11 {
		t.Fatalf("few endpoints are used: %v", seen)
	}
	c.expectEndpoints(seen)
	counts, err := c.counters().FrontendCounts()
	if err != nil || len(counts) == 0 {
		t.Errorf("frontends are not counted: %v, %v", counts, err)
	}
	for _, f := range []model.Frontend{ranged(web4), ranged(web6)} {
		if !slices.Contains(counts, counters.Frontend{Frontend: f.ID(), Connections: 25}) {
			t.Errorf("25 connections to %s are not counted: %v", f, counts)
		}
	}

	// A restart changes nothing, and neither does what it reads count as drift.
	if p, err := New(c.Conn, slog.New(slog.DiscardHandler)).Apply(nft.FromNothing(c.rulesOf(s, config))); err != nil || !p.Empty() {
		t.Errorf("second apply: %v, %v", p, err)
	}
	c.expectEndpoints(seen)
	config.EndpointCounters = false
	mustApply(t, c.applier, c.rulesOf(s, config))
	c.expectEndpoints(map[use]uint64{})
}

// TestOwnSlotsAreCounted: by topology hints, clients in the cluster have other
// endpoints than those outside.
func TestOwnSlotsAreCounted(t *testing.T) {
	c := newCounted(t, 2)
	s := c.snapshot(2)
	s.Nodes[0].Zone = "a"
	s.Services[0].AffinityTimeout = 0
	for i := range s.Slices {
		hosts := s.Slices[i].Hosts
		hosts[0].Place = model.NewPlace("node", "", []string{"b"}, nil)
		hosts[1].Place = model.NewPlace("another", "", []string{"a"}, nil)
	}
	mustApply(t, c.applier, c.rulesOf(s, model.Config{EndpointCounters: true}))
	seen := make(map[use]uint64)
	c.tally(seen, c.lab.Client, c.nodePort(), 3)
	c.tally(seen, c.lab.Pods[0], c.nodePort(), 4)
	if len(seen) != 2 {
		t.Fatalf("clients use %v", seen)
	}
	c.expectEndpoints(seen)
}

// TestStickyConnections: a client that session affinity remembers looks for no slot.
func TestStickyConnections(t *testing.T) {
	c := newCounted(t, 2)
	mustApply(t, c.applier, c.rulesOf(c.snapshot(2), model.Config{EndpointCounters: true}))
	first := make(map[use]uint64)
	c.tally(first, c.lab.Client, web4, 1)
	c.tally(make(map[use]uint64), c.lab.Client, web4, 5)
	c.expectEndpoints(first)
}

// BenchmarkLoadEndpointCounters fills empty tables whose frontends and endpoints count
// connections: see BenchmarkLoadCounters.
func BenchmarkLoadEndpointCounters(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		desired := withEndpointCounters(withCounters(workload.Scenario(services, endpoints, 0)))
		s := newSandbox(b)
		for b.Loop() {
			commitFrom(b, s, &nft.Ruleset{}, desired)
			b.StopTimer()
			commitFrom(b, s, desired, &nft.Ruleset{})
			b.StartTimer()
		}
	})
}

func withEndpointCounters(rs *nft.Ruleset) *nft.Ruleset {
	rs = workload.Clone(rs)
	for _, t := range rs.Tables {
		t.Set(nft.EndpointsMap).Counters = true
	}
	return rs
}

// BenchmarkEndpointCounts reads the counters of the endpoints of one Service among
// 10,000.
func BenchmarkEndpointCounts(b *testing.B) {
	rules := withEndpointCounters(workload.Scenario(10_000, 4, 0))
	s := newSandbox(b)
	commitFrom(b, s, &nft.Ruleset{}, rules)
	elements := rules.Tables[0].Set(nft.ServicesMap).Elements
	frontends := []model.Frontend{elements[len(elements)/2].Key.Frontend()}
	for b.Loop() {
		if counts, err := s.counters().EndpointCounts(frontends); err != nil || len(counts) != 4 {
			b.Fatal(len(counts), err)
		}
	}
}

// BenchmarkLastCounts reads the counters that end with a change of one endpoint among those
// of 10,000 Services.
func BenchmarkLastCounts(b *testing.B) {
	rules := withEndpointCounters(workload.Scenario(10_000, 4, 0))
	s := newSandbox(b)
	commitFrom(b, s, &nft.Ruleset{}, rules)
	set := rules.Tables[0].Set(nft.EndpointsMap)
	change := plan.Change{Verb: plan.Replace, Family: rules.Tables[0].Family, Set: set, Old: &set.Elements[len(set.Elements)/2]}
	p := &plan.Plan{Changes: []plan.Change{change}}
	for b.Loop() {
		if counts, err := s.counters().LastCounts(p); err != nil || len(counts) != 1 {
			b.Fatal(len(counts), err)
		}
	}
}
