package explain

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// mixture returns Services of many kinds, each on an address of its own that
// ends in its number.
func mixture(l *netlab.Lab) *model.Snapshot {
	here, remote := l.Pods, l.Remote
	s := &model.Snapshot{
		Nodes:        []*model.Node{{Name: l.Node.Name, Addresses: []netip.Addr{l.Node.IPv4, l.Node.IPv6}}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("fd00:10:96::/112")},
	}
	for i, c := range []struct {
		name      string
		endpoints []*netlab.Host
		change    func(*model.Service)
	}{
		{"plain", append(here[:2:2], remote[0]), func(*model.Service) {}},
		{"none", nil, func(*model.Service) {}},
		{"outside-local", append(here[:1:1], remote[0]), func(s *model.Service) { s.ExternalPolicy = model.PolicyLocal }},
		{"outside-away", remote[:2], func(s *model.Service) { s.ExternalPolicy = model.PolicyLocal }},
		{"inside-local", append(here[:1:1], remote[0]), func(s *model.Service) { s.InternalPolicy = model.PolicyLocal }},
		{"inside-away", remote[:1], func(s *model.Service) { s.InternalPolicy = model.PolicyLocal }},
		{"ranges", here[:2], func(s *model.Service) {
			s.External.SourceRanges = []netip.Prefix{netlab.PodCIDRv4, netlab.PodCIDRv6}
		}},
		{"affinity", append(here[:2:2], remote[0]), func(s *model.Service) { s.AffinityTimeout = time.Hour }},
		{"node", []*netlab.Host{l.Node}, func(s *model.Service) { s.AffinityTimeout = time.Minute }},
		{"random", append(here[:2:2], remote[0]), func(s *model.Service) { s.Scheduler = model.Random }},
	} {
		s.Services = append(s.Services, oneOf(c.name, byte(i+1), c.change))
		for _, f := range model.Families {
			slice := &model.EndpointSlice{
				Namespace: "default", Service: c.name, Family: f,
				Ports: []model.EndpointPort{{Name: "p", Protocol: model.TCP, Port: echoPort}},
			}
			for _, h := range c.endpoints {
				slice.Hosts = append(slice.Hosts, model.Host{Address: h.Address(f), Ready: true, Place: model.OnNode(h.NodeName)})
			}
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

func oneOf(name string, n byte, change func(*model.Service)) *model.Service {
	last := func(prefix string) netip.Addr {
		b := addr(prefix).AsSlice()
		b[len(b)-1] = n
		a, _ := netip.AddrFromSlice(b)
		return a
	}
	svc := &model.Service{
		Name:       model.ServiceName{Namespace: "default", Name: name},
		ClusterIPs: []netip.Addr{last("10.96.0.0"), last("fd00:10:96::")},
		External:   &model.External{LoadBalancerIPs: []netip.Addr{last("203.0.113.0"), last("2001:db8:ff::")}},
		Ports:      []model.ServicePort{{Name: "p", Protocol: model.TCP, Port: 80, NodePort: 30000 + uint16(n)}},
	}
	change(svc)
	return svc
}

// TestPredicted predicts every connection that can be made to the frontends of
// a mixture of Services, and makes it. It needs root.
func TestPredicted(t *testing.T) {
	for name, config := range map[string]model.Config{
		"by source":    {ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}},
		"by interface": {DetectLocal: model.DetectInterfaceNamePrefix, PodInterface: "pod-"},
		"not at all":   {},
		"everybody":    {MasqueradeAll: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			answers(t, l.Node)
			s := mixture(l)
			config.NodeName = l.Node.Name
			routing := model.Resolve(s, config)
			rs := applied(t, l, render.Render(routing))
			local := LocalAddresses(s, config)
			seen := make(map[Disposition]int)
			for _, f := range model.Families {
				for _, p := range everyPacket(l, s, routing, f) {
					r := Explain(rs.Table(f), p.Packet, local)
					predict(t, l, r, p.from)
					seen[r.Outcomes[0].Verdict]++
				}
			}
			for _, v := range []Disposition{Forward, Reject, Drop} {
				if seen[v] < 10 {
					t.Errorf("only %d packets of verdict %s", seen[v], v)
				}
			}
		})
	}
}

type dialling struct {
	Packet
	from *netlab.Host
}

// everyPacket returns what each host could send to each frontend, to a port
// that no Service has, and to an address that none has.
func everyPacket(l *netlab.Lab, s *model.Snapshot, routing *model.Routing, f model.Family) []dialling {
	var frontends []model.Frontend
	for i := range routing.Routes {
		frontends = append(frontends, routing.Routes[i].Frontend)
	}
	for _, ip := range s.Services[0].ClusterIPs {
		frontends = append(frontends, model.Frontend{Address: ip, Protocol: model.TCP, Port: 81})
		b := ip.AsSlice()
		b[len(b)-1] = 99
		free, _ := netip.AddrFromSlice(b)
		frontends = append(frontends, model.Frontend{Address: free, Protocol: model.TCP, Port: 80})
	}
	var out []dialling
	for _, to := range frontends {
		if model.FamilyOf(to.Address) != f {
			continue
		}
		p := Packet{Destination: to.Address, Protocol: to.Protocol, Port: to.Port}
		out = append(out, dialling{p.SentBy(s.Nodes[0].Addresses), l.Node})
		for _, h := range append(l.Pods[:2:2], l.Client) {
			p.Source, p.Interface = h.Address(f), h.Name
			out = append(out, dialling{p, h})
		}
	}
	return out
}

// predict connects and compares.
func predict(t *testing.T, l *netlab.Lab, r *Result, from *netlab.Host) {
	t.Helper()
	verdict, ok := r.Verdict()
	wait := time.Duration(0)
	if verdict == Drop {
		wait = 50 * time.Millisecond
	}
	got, err := from.Ask("tcp", netip.AddrPortFrom(r.Packet.Destination, r.Packet.Port), wait)
	var timeout net.Error
	happened := Forward
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		happened = Reject
	// A packet that is dropped on the node that made it is "not permitted".
	case errors.Is(err, syscall.EPERM) || errors.As(err, &timeout) && timeout.Timeout():
		happened = Drop
	case err != nil:
		t.Fatalf("%s: %v", r.Packet, err)
	}
	if !ok || happened != verdict {
		t.Errorf("%s: %s, predicted was %s", r.Packet, happened, briefs(r))
		return
	}
	if verdict == Forward && !slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return isOutcome(l, from, got, o) }) {
		t.Errorf("%s: %s sees %s, predicted was %s", r.Packet, got.Name, got.Client, briefs(r))
	}
}

// isOutcome reports whether an answer comes from the endpoint of an outcome, and
// whether that sees the client as it should.
func isOutcome(l *netlab.Lab, from *netlab.Host, got netlab.Answer, o Outcome) bool {
	for _, h := range append(slices.Concat(l.Pods, l.Remote), l.Node) {
		if h.Name == got.Name && h.Address(model.FamilyOf(o.Endpoint.Addr())) == o.Endpoint.Addr() {
			return from == l.Node || l.IsNode(got.Client) == (o.Masquerade != "")
		}
	}
	return false
}
