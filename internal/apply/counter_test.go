package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// counted is a node with services that are really dialled.
type counted struct {
	*sandbox
	lab *netlab.Lab
	t   *testing.T
}

func newCounted(t *testing.T, pods int) *counted {
	t.Helper()
	lab := netlab.TestLab(t, pods)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	c := &counted{sandbox: &sandbox{ns: lab.Node.Namespace}, lab: lab, t: t}
	if err := lab.Node.Do(func() (err error) { c.Conn, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.applier = New(c.Conn, slog.New(slog.DiscardHandler))
	return c
}

// Frontends of rules: a Service in both families, with a NodePort of policy
// Local and with affinity, and one without endpoints.
var (
	web4  = model.Frontend{Address: workload.Addr("10.96.0.10"), Protocol: model.TCP, Port: 80}
	web6  = model.Frontend{Address: workload.Addr("fd00:10:96::10"), Protocol: model.TCP, Port: 80}
	dns   = model.Frontend{Address: workload.Addr("10.96.0.10"), Protocol: model.UDP, Port: 53}
	empty = model.Frontend{Address: workload.Addr("10.96.0.11"), Protocol: model.TCP, Port: 80}
)

func (c *counted) nodePort() model.Frontend {
	return model.Frontend{Address: c.lab.Node.IPv4, Protocol: model.TCP, Port: 30080}
}

// rules returns the rules for the first pods.
func (c *counted) rules(counters bool, pods int) *nft.Ruleset {
	return c.rulesOf(c.snapshot(pods), model.Config{Counters: counters})
}

func (c *counted) rulesOf(s *model.Snapshot, config model.Config) *nft.Ruleset {
	config.NodeName, config.ClusterCIDRs = "node", []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}
	return render.Render(model.Resolve(s, config))
}

// snapshot has two Services, one of them with the first pods.
func (c *counted) snapshot(pods int) *model.Snapshot {
	web := model.ServiceName{Namespace: "default", Name: "web"}
	s := &model.Snapshot{
		Nodes: []*model.Node{{Name: "node", Addresses: []netip.Addr{c.lab.Node.IPv4}}},
		Services: []*model.Service{{
			Name: web, ClusterIPs: []netip.Addr{web4.Address, web6.Address}, ExternalPolicy: model.PolicyLocal, AffinityTimeout: time.Hour,
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		}, {
			Name: model.ServiceName{Namespace: "default", Name: "empty"}, ClusterIPs: []netip.Addr{empty.Address},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}},
	}
	for _, f := range model.Families {
		slice := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprint("web-", f), Service: "web", Family: f,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 8080}}}
		for _, p := range c.lab.Pods[:pods] {
			slice.Hosts = append(slice.Hosts, model.Host{Address: p.Address(f), Ready: true, Serving: true, Place: model.OnNode("node")})
		}
		s.Slices = append(s.Slices, slice)
	}
	return s
}

// dial makes a number of connections, with three packets of the client in each.
func (c *counted) dial(from *netlab.Host, f model.Frontend, n int) {
	c.t.Helper()
	for range n {
		flow, err := from.Open(f.Protocol.String(), netip.AddrPortFrom(f.Address, f.Port), 0)
		if err != nil {
			c.t.Fatal(err)
		}
		for range 3 {
			if _, err := flow.Ask(); err != nil {
				c.t.Error(err)
			}
		}
		_ = flow.Close()
	}
}

type count struct {
	model.FrontendID
	outside bool
}

// expect compares all counters that are not 0.
func (c *counted) expect(want map[count]uint64) {
	c.t.Helper()
	counts, err := c.counters().FrontendCounts()
	if err != nil {
		c.t.Fatal(err)
	}
	got := make(map[count]uint64)
	for _, n := range counts {
		if n.Connections > 0 {
			got[count{n.Frontend, n.Outside}] = n.Connections
		}
	}
	if !maps.Equal(got, want) {
		c.t.Errorf("counted %v, want %v", got, want)
	}
}

// TestCounters counts real connections exactly: one for each, whatever it
// carries, and apart for clients that another verdict holds for.
func TestCounters(t *testing.T) {
	c := newCounted(t, 2)
	mustApply(t, c.applier, c.rules(true, 2))
	c.dial(c.lab.Client, web4, 5)
	c.dial(c.lab.Client, web6, 4)
	c.dial(c.lab.Client, dns, 3)
	c.dial(c.lab.Client, c.nodePort(), 2)
	c.dial(c.lab.Pods[0], c.nodePort(), 1)
	c.dial(c.lab.Node, c.nodePort(), 1)
	for range 6 {
		if _, err := c.lab.Client.Ask("tcp", netip.AddrPortFrom(empty.Address, empty.Port), 0); err == nil {
			t.Error("a service without endpoints answers")
		}
	}
	want := map[count]uint64{{web4.ID(), false}: 5, {web6.ID(), false}: 4, {dns.ID(), false}: 3, {c.nodePort().ID(), true}: 2, {c.nodePort().ID(), false}: 2, {empty.ID(), false}: 6}
	c.expect(want)

	// A restart changes nothing, and neither does what it reads count as drift.
	_, before, _ := c.Read()
	if p, err := New(c.Conn, slog.New(slog.DiscardHandler)).Apply(nft.FromNothing(c.rules(true, 2))); err != nil || !p.Empty() {
		t.Errorf("second apply: %v, %v", p, err)
	}
	if _, after, _ := c.Read(); after != before {
		t.Errorf("generation %d after %d", after, before)
	}
	c.expect(want)

	// Another verdict is another element, which starts at 0; the verdict for
	// services without endpoints stays.
	mustApply(t, c.applier, c.rules(true, 1))
	c.dial(c.lab.Client, web4, 1)
	c.expect(map[count]uint64{{web4.ID(), false}: 1, {empty.ID(), false}: 6})
}

// TestNothingIsCounted wants no counters unless they are configured.
func TestNothingIsCounted(t *testing.T) {
	s := newSandbox(t)
	if counts, err := s.counters().FrontendCounts(); err != nil || counts != nil {
		t.Errorf("without tables: %v, %v", counts, err)
	}
	if counts, err := s.counters().EndpointCounts([]model.Frontend{web4}); err != nil || counts != nil {
		t.Errorf("endpoints without tables: %v, %v", counts, err)
	}
	s.apply(t, workload.Scenario(1, 1, 0))
	if counts, err := s.counters().FrontendCounts(); err != nil || counts != nil {
		t.Errorf("without counters: %v, %v", counts, err)
	}
}

// TestSwitchCounters switches counters on and off under traffic: connections go
// on, new ones are served, and clients keep their bindings. The kernel evaluates
// a packet by the rules of the moment at which it came, but looks elements up by
// those of now: one that is between the two when a map is replaced misses it and
// is refused. That is a microsecond; a gap between transactions would be a
// thousand times as long, and refuse connections at nearly every switch.
func TestSwitchCounters(t *testing.T) {
	c := newCounted(t, 2)
	mustApply(t, c.applier, c.rules(false, 2))
	open, err := c.lab.Client.Open("tcp", netip.AddrPortFrom(web4.Address, web4.Port), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	first, err := open.Ask()
	if err != nil {
		t.Fatal(err)
	}
	var served, refused atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.dialUntil(stop, first.Name, &served, &refused)
	}()
	switches := int64(0)
	snapshot := c.snapshot(2)
	for ; switches < 50 || served.Load() < 50; switches++ {
		// Those of frontends, of endpoints, of both, and none.
		config := model.Config{Counters: switches%2 == 0, EndpointCounters: switches%4 < 2}
		p, err := c.applier.Apply(nft.FromNothing(c.rulesOf(snapshot, config)))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Kind() == "table" }) {
			t.Fatal("the table was replaced")
		}
	}
	close(stop)
	<-done
	if refused.Load() > switches/10 {
		t.Errorf("%d switches: %d connections were served, %d refused", switches, served.Load(), refused.Load())
	}
	if again, err := open.Ask(); err != nil || again != first {
		t.Errorf("the open connection: %v, %v", again, err)
	}
	mustApply(t, c.applier, c.rules(true, 2))
	c.dial(c.lab.Client, web4, 3)
	c.expect(map[count]uint64{{web4.ID(), false}: 3})
}

// dialUntil makes connections of one client, one after the other, which must
// all get the same endpoint.
func (c *counted) dialUntil(stop <-chan struct{}, endpoint string, served, refused *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		answer, err := c.lab.Client.Ask("tcp", netip.AddrPortFrom(web4.Address, web4.Port), 0)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			refused.Add(1)
		case err != nil || answer.Name != endpoint:
			c.t.Errorf("got %v, %v, want an answer of %s", answer, err, endpoint)
		default:
			served.Add(1)
		}
	}
}

// TestSwitchBesideForeignRules switches counters on although another program has put
// rules into our table, which keep a map in use.
func TestSwitchBesideForeignRules(t *testing.T) {
	for _, commands := range [][]string{
		{"add rule ip nftproxy dispatch meta priority set ip daddr . meta l4proto . th dport map @services meta priority vmap @lanes"},
		{"add rule ip nftproxy dispatch log prefix \"x\" meta priority set ip daddr . meta l4proto . th dport map @services meta priority vmap @lanes"},
		{"add chain ip nftproxy extra", "add rule ip nftproxy extra meta priority set ip daddr . meta l4proto . th dport map @services meta priority vmap @lanes"},
		{"add chain ip nftproxy extra", "add rule ip nftproxy extra log meta priority set ip daddr . meta l4proto . th dport map @services meta priority vmap @lanes"},
		{"add map ip nftproxy extra { type ipv4_addr . inet_proto . inet_service : verdict; counter; }"},
	} {
		s := newSandbox(t)
		desired := workload.Sample()
		s.apply(t, desired)
		for _, command := range commands {
			s.nft(t, command)
		}
		s.apply(t, withCounters(desired))
	}
}

// withCounters returns a ruleset that counts, and is otherwise the same.
func withCounters(rs *nft.Ruleset) *nft.Ruleset {
	rs = workload.Clone(rs)
	for _, t := range rs.Tables {
		t.Set(nft.ServicesMap).Counters, t.Set(nft.LocalServicesMap).Counters = true, true
	}
	return rs
}

// BenchmarkLoadCounters fills empty tables whose frontends count connections.
func BenchmarkLoadCounters(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		desired := withCounters(workload.Scenario(services, endpoints, 0))
		s := newSandbox(b)
		for b.Loop() {
			commitFrom(b, s, &nft.Ruleset{}, desired)
			b.StopTimer()
			commitFrom(b, s, desired, &nft.Ruleset{})
			b.StartTimer()
		}
	})
}

// BenchmarkFrontendCounts reads all counters.
func BenchmarkFrontendCounts(b *testing.B) {
	forSizes(b, func(b *testing.B, services, endpoints int) {
		s := newSandbox(b)
		commitFrom(b, s, &nft.Ruleset{}, withCounters(workload.Scenario(services, endpoints, 0)))
		b.ReportAllocs()
		for b.Loop() {
			if counts, err := s.counters().FrontendCounts(); err != nil || len(counts) != services {
				b.Fatalf("%d counters, %v", len(counts), err)
			}
		}
	})
}
