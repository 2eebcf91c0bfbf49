package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// from reads a question, such as "203.0.113.7 tcp 10.96.0.10:80".
func from(t *testing.T, text string) Packet {
	t.Helper()
	f := strings.Fields(text)
	p, err := Parse(f[1], f[2])
	if err != nil {
		t.Fatal(err)
	}
	if f[0] == "node" {
		p.FromNode = true
	} else {
		p.Source = addr(f[0])
	}
	return p
}

// service is a Service with a port http of each protocol, an endpoint on this
// node and one on another.
func service() *model.Snapshot {
	svc := &model.Service{
		Name:       model.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{addr("10.96.0.10"), addr("fd00::10")},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	slice := func(f model.Family, addresses ...string) *model.EndpointSlice {
		s := &model.EndpointSlice{
			Namespace: "default", Service: "web", Family: f,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for i, a := range addresses {
			s.Hosts = append(s.Hosts, model.Host{Address: addr(a), Ready: true, Serving: true, Place: model.OnNode(fmt.Sprintf("node-%d", i+1))})
		}
		return s
	}
	return &model.Snapshot{
		Services: []*model.Service{svc},
		Slices:   []*model.EndpointSlice{slice(model.IPv4, "10.128.1.1", "10.128.2.1"), slice(model.IPv6, "fd01::1")},
		Nodes:    []*model.Node{{Name: "node-1", Addresses: []netip.Addr{addr("192.168.7.1"), addr("fd02::1")}}},
	}
}

var node1 = model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}

// ask answers a question about a snapshot.
func ask(t *testing.T, s *model.Snapshot, c model.Config, question string) *Result {
	t.Helper()
	r := askRules(t, s, c, question)
	r.AddObjects(s.Route(c))
	return r
}

// askRules answers a question from the rules for a snapshot alone.
func askRules(t *testing.T, s *model.Snapshot, c model.Config, question string) *Result {
	t.Helper()
	p := from(t, question)
	local := LocalAddresses(s, c)
	if p.FromNode {
		p = p.SentBy(local)
	}
	return Explain(render.Render(model.Resolve(s, c)).Table(model.FamilyOf(p.Destination)), p, local)
}

// brief writes an outcome in a few words.
func brief(o Outcome) string {
	text := o.Verdict.String()
	if o.Endpoint.IsValid() {
		text += " " + o.Endpoint.String()
	}
	if o.Share < 1 {
		text += fmt.Sprintf(" %.2f", o.Share)
	}
	if o.Masquerade != "" {
		text += " masquerade"
	}
	if o.Bound {
		text += " bound"
	}
	if o.Remember > 0 {
		text += " " + o.Remember.String()
	}
	return text
}

func briefs(r *Result) string {
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, brief(o))
	}
	return strings.Join(out, ", ")
}

// TestRendered asks about rules as they are rendered.
func TestRendered(t *testing.T) {
	weights := service()
	weights.Slices[0].Hosts[1].Weight = 3
	affinity := service()
	affinity.Services[0].AffinityTimeout = time.Hour
	local := service()
	local.Services[0].External = &model.External{ExternalIPs: []netip.Addr{addr("198.51.100.1")}}
	local.Services[0].ExternalPolicy = model.PolicyLocal
	ranges := service()
	ranges.Services[0].External = &model.External{
		LoadBalancerIPs: []netip.Addr{addr("198.51.100.2")},
		SourceRanges:    []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("192.168.0.0/16")},
	}
	itself := service()
	itself.Slices[0].Hosts[0].Address = addr("192.168.7.1")
	itself.Services[0].AffinityTimeout = time.Hour
	prefix := netip.MustParsePrefix
	lists := service()
	lists.Services[0].External = ranges.Services[0].External
	lists.Services[0].Extras = &model.Extras{Sources: model.NewSources(true, []netip.Prefix{prefix("203.0.112.0/20"), prefix("10.128.0.0/9")}, []netip.Prefix{prefix("203.0.113.0/25")})}
	balance := service()
	balance.Services[0].Balance, balance.Services[0].External = true, ranges.Services[0].External
	balance.Services[0].Extras = &model.Extras{Sources: model.NewSources(false, nil, []netip.Prefix{prefix("203.0.113.7/32")})}
	free := service()
	free.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	for _, c := range []struct {
		name     string
		snapshot *model.Snapshot
		question string
		want     string
	}{
		{"from outside", service(), "203.0.113.7 tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"},
		{"from a pod", service(), "10.128.9.9 tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.50, forward 10.128.2.1:8080 0.50"},
		{"hairpin", service(), "10.128.1.1 tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50"},
		{"from the node", service(), "node tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"},
		{"IPv6 has no detector", service(), "2001:db8::7 tcp [fd00::10]:80", "forward [fd01::1]:8080"},
		{"no such port", service(), "203.0.113.7 tcp 10.96.0.10:81", "reject"},
		{"no such protocol", service(), "203.0.113.7 udp 10.96.0.10:80", "reject"},
		{"ping", service(), "203.0.113.7 icmp 10.96.0.10", "reject"},
		{"ping over IPv6", service(), "2001:db8::7 icmpv6 fd00::10", "reject"},
		{"a protocol by number", service(), "203.0.113.7 47 10.96.0.10", "reject"},
		{"elsewhere", service(), "203.0.113.7 tcp 192.0.2.1:80", "not ours"},
		{"free address", free, "203.0.113.7 tcp 10.96.1.1:80", "drop"},
		{"ping to a free address", free, "203.0.113.7 icmp 10.96.1.1", "drop"},
		{"weights", weights, "10.128.9.9 tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.25, forward 10.128.2.1:8080 0.75"},
		{"affinity", affinity, "10.128.9.9 tcp 10.96.0.10:80", "forward 10.128.1.1:8080 0.50 1h0m0s, forward 10.128.2.1:8080 0.50 1h0m0s"},
		{"policy Local from outside", local, "203.0.113.7 tcp 198.51.100.1:80", "forward 10.128.1.1:8080"},
		{"policy Local from a pod", local, "10.128.9.9 tcp 198.51.100.1:80", "forward 10.128.1.1:8080 0.50, forward 10.128.2.1:8080 0.50"},
		{"policy Local from the node", local, "192.168.7.1 tcp 198.51.100.1:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"},
		{"in the source ranges", ranges, "203.0.113.7 tcp 198.51.100.2:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"},
		{"outside of the source ranges", ranges, "203.0.114.7 tcp 198.51.100.2:80", "drop"},
		{"source ranges and the node", ranges, "node tcp 198.51.100.2:80", "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"},
		// The source is decided at the hook input, which does not masquerade.
		{"the node as endpoint", itself, "203.0.113.7 tcp 10.96.0.10:80", "forward 10.128.2.1:8080 0.50 masquerade 1h0m0s, forward 192.168.7.1:8080 0.50 1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask(t, c.snapshot, node1, c.question)
			if got := briefs(r); got != c.want {
				t.Errorf("%s: %q, want %q", c.question, got, c.want)
			}
			sum := 0.0
			for _, o := range r.Outcomes {
				sum += o.Share
				if (o.Reason == "") != (o.Verdict == Forward) {
					t.Errorf("%s has the reason %q", brief(o), o.Reason)
				}
			}
			if sum < 0.999 || sum > 1.001 {
				t.Errorf("shares add up to %f", sum)
			}
		})
	}
}

// TestReasons wants a reason that a person understands for each verdict of
// rendered rules, and the list that excludes a client (4.83).
func TestReasons(t *testing.T) {
	none := service()
	none.Slices = nil
	away := service()
	away.Services[0].InternalPolicy = model.PolicyLocal
	away.Slices[0].Hosts = away.Slices[0].Hosts[1:]
	outside := service()
	outside.Services[0].External = &model.External{ExternalIPs: []netip.Addr{addr("198.51.100.1")}}
	outside.Services[0].ExternalPolicy = model.PolicyLocal
	outside.Slices[0].Hosts = outside.Slices[0].Hosts[1:]
	ranges := service()
	ranges.Services[0].External = &model.External{
		LoadBalancerIPs: []netip.Addr{addr("198.51.100.2")},
		SourceRanges:    []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
	}
	prefix := netip.MustParsePrefix
	lists := service()
	lists.Services[0].External = ranges.Services[0].External
	lists.Services[0].Extras = &model.Extras{Sources: model.NewSources(true, []netip.Prefix{prefix("203.0.112.0/20"), prefix("10.128.0.0/9")}, []netip.Prefix{prefix("203.0.113.0/25")})}
	balance := service()
	balance.Services[0].Balance, balance.Services[0].External = true, ranges.Services[0].External
	balance.Services[0].Extras = &model.Extras{Sources: model.NewSources(false, nil, []netip.Prefix{prefix("203.0.113.7/32")})}
	free := service()
	free.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	for _, c := range []struct {
		snapshot       *model.Snapshot
		question, want string
	}{
		{none, "10.128.9.9 tcp 10.96.0.10:80", "no endpoint of the Service can take connections"},
		{away, "10.128.9.9 tcp 10.96.0.10:80", "the Service wants endpoints of this node, which has none"},
		{outside, "203.0.113.7 tcp 198.51.100.1:80", "the Service wants endpoints of this node for clients outside of the cluster, and there is none"},
		{ranges, "203.0.114.7 tcp 198.51.100.2:80", "the source is in none of the ranges that the Service admits: spec.loadBalancerSourceRanges"},
		{lists, "203.0.114.7 tcp 198.51.100.2:80", "the source is in none of the ranges that the Service admits: spec.loadBalancerSourceRanges"},
		{lists, "10.1.2.3 tcp 10.96.0.10:80", "the source is in none of the ranges that the Service admits: nftproxy.dev/source-ranges"},
		{lists, "203.0.113.7 tcp 10.96.0.10:80", "the source is in a range that the Service denies: nftproxy.dev/denied-sources"},
		{balance, "203.0.113.7 tcp 198.51.100.2:80", "the source is in a range that the Service denies: deny"},
		{balance, "203.0.114.7 tcp 198.51.100.2:80", "the source is in none of the ranges that the Service admits: clients"},
		{service(), "10.128.9.9 tcp 10.96.0.10:81", "the ClusterIP has no such port"},
		{free, "10.128.9.9 tcp 10.96.1.1:81", "no Service has this address of a service CIDR"},
		{service(), "10.128.9.9 tcp 192.0.2.1:81", "no rule matches"},
		{&model.Snapshot{}, "10.128.9.9 tcp 192.0.2.1:81", "there is no table for IPv4"},
	} {
		r := ask(t, c.snapshot, node1, c.question)
		if got := r.Outcomes[0].Reason; got != c.want || len(r.Outcomes) != 1 {
			t.Errorf("%s: %q, want %q", c.question, got, c.want)
		}
		if list := r.Outcomes[0].List; list != "" != strings.Contains(c.want, ": ") || !strings.HasSuffix(c.want, list) {
			t.Errorf("%s: list %q", c.question, list)
		}
	}
}

// TestUnknownNodeAddress answers for a node of which no address is known, and
// says so.
func TestUnknownNodeAddress(t *testing.T) {
	s := service()
	s.Nodes = nil
	r := ask(t, s, node1, "node tcp 10.96.0.10:80")
	if want := "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"; briefs(r) != want || len(r.Notes) != 1 {
		t.Errorf("%q with notes %q, want %q", briefs(r), r.Notes, want)
	}
}

// TestSentBy finds the address that the node uses.
func TestSentBy(t *testing.T) {
	local := []netip.Addr{addr("fd02::1"), addr("192.168.7.1"), addr("198.51.100.7")}
	for _, c := range []struct{ to, want string }{
		{"10.96.0.10", "192.168.7.1"},
		{"198.51.100.7", "198.51.100.7"},
		{"127.0.0.1", "127.0.0.1"},
		{"fd00::10", "fd02::1"},
	} {
		if got := (Packet{Destination: addr(c.to)}).SentBy(local); got.Source != addr(c.want) || !got.FromNode {
			t.Errorf("to %s: from %s, want %s", c.to, got.Source, c.want)
		}
	}
}

// TestInterface recognises pods by the interface.
func TestInterface(t *testing.T) {
	s := service()
	s.Services[0].External = &model.External{ExternalIPs: []netip.Addr{addr("198.51.100.1")}}
	s.Services[0].ExternalPolicy = model.PolicyLocal
	const masqueraded = "forward 10.128.1.1:8080 0.50 masquerade, forward 10.128.2.1:8080 0.50 masquerade"
	kept := strings.ReplaceAll(masqueraded, " masquerade", "")
	for _, c := range []struct {
		mode             model.DetectMode
		device, to, want string
	}{
		{model.DetectBridgeInterface, "cni", "10.96.0.10:80", kept},
		{model.DetectBridgeInterface, "cni0", "10.96.0.10:80", masqueraded},
		{model.DetectInterfaceNamePrefix, "cni0", "10.96.0.10:80", kept},
		{model.DetectInterfaceNamePrefix, "eth0", "10.96.0.10:80", masqueraded},
		{model.DetectBridgeInterface, "cni", "198.51.100.1:80", kept},
		{model.DetectBridgeInterface, "eth0", "198.51.100.1:80", "forward 10.128.1.1:8080"},
		// Not given: it matters only where a rule would match.
		{model.DetectBridgeInterface, "", "10.96.0.10:80", "unknown 10.128.1.1:8080 0.50, unknown 10.128.2.1:8080 0.50"},
		{model.DetectBridgeInterface, "", "198.51.100.1:80", "unknown"},
		{model.DetectBridgeInterface, "", "10.96.0.10:81", "reject"},
	} {
		config := model.Config{NodeName: "node-1", DetectLocal: c.mode, PodInterface: "cni"}
		p := from(t, "10.128.9.9 tcp "+c.to)
		p.Interface = c.device
		r := Explain(render.Render(model.Resolve(s, config)).Table(model.IPv4), p, LocalAddresses(s, config))
		if got := briefs(r); got != c.want {
			t.Errorf("on %q to %s: %q, want %q", c.device, c.to, got, c.want)
		}
	}
}

// TestBindings honours what a map of affinity holds.
func TestBindings(t *testing.T) {
	s := service()
	s.Services[0].AffinityTimeout = time.Hour
	table := render.Render(model.Resolve(s, node1)).Table(model.IPv4)
	bindings := table.Set("affinity")
	bindings.Elements = []nft.Element{{
		Key:   nft.Key{Source: addr("10.128.9.9"), Address: addr("10.96.0.10"), Protocol: model.TCP, Port: 80},
		Value: nft.Value{Endpoint: netip.MustParseAddrPort("10.128.2.1:8080")},
	}}
	for source, want := range map[string]string{
		"10.128.9.9": "forward 10.128.2.1:8080 bound 1h0m0s",
		"10.128.9.8": "forward 10.128.1.1:8080 0.50 1h0m0s, forward 10.128.2.1:8080 0.50 1h0m0s",
	} {
		if got := briefs(Explain(table, from(t, source+" tcp 10.96.0.10:80"), nil)); got != want {
			t.Errorf("from %s: %q, want %q", source, got, want)
		}
	}
}

// TestMissingSlots: a connection that gets a slot without an element is refused as
// one to a port that the ClusterIP does not have.
func TestMissingSlots(t *testing.T) {
	table := render.Render(model.Resolve(service(), node1)).Table(model.IPv4)
	endpoints := table.Set("endpoints")
	endpoints.Elements = slices.Delete(endpoints.Elements, 0, 1)
	r := Explain(table, from(t, "10.128.9.9 tcp 10.96.0.10:80"), nil)
	if len(r.Outcomes) != 2 || r.Outcomes[0].Verdict != Reject || r.Outcomes[0].Reason != "the slot has no endpoint" || r.Outcomes[1].Share != 0.5 {
		t.Errorf("outcomes are %q", briefs(r))
	}
	if _, ok := r.Verdict(); ok {
		t.Error("one verdict for all")
	}
	endpoints.Elements = nil
	if r := Explain(table, from(t, "10.128.9.9 tcp 10.96.0.10:80"), nil); briefs(r) != "reject" {
		t.Errorf("without any endpoint: %q", briefs(r))
	}
}
