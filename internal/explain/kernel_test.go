package explain

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const echoPort = 8080

// newLab builds a node with pods that answer.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	l := netlab.TestLab(t, 3)
	if err := l.AddRemotePods(3); err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Concat(l.Pods, l.Remote) {
		answers(t, p)
	}
	return l
}

// answers starts an echo server on a host.
func answers(t *testing.T, h *netlab.Host) {
	t.Helper()
	e, err := h.Echo(echoPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// hashed returns a Service of which port 2 has two endpoints, port 3 three and
// so on, and clients are spread by their address.
func hashed(l *netlab.Lab) *model.Snapshot {
	pods := slices.Concat(l.Pods, l.Remote)
	svc := &model.Service{
		Name:       model.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{addr("10.96.0.10"), addr("fd00:10:96::10")},
		Scheduler:  model.SourceHash,
	}
	s := &model.Snapshot{
		Services: []*model.Service{svc},
		Nodes:    []*model.Node{{Name: l.Node.Name, Addresses: []netip.Addr{l.Node.IPv4, l.Node.IPv6}}},
	}
	for n := 2; n <= len(pods); n++ {
		name := fmt.Sprint("p", n)
		svc.Ports = append(svc.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(n)})
		for _, f := range model.Families {
			slice := &model.EndpointSlice{
				Namespace: "default", Service: "web", Family: f,
				Ports: []model.EndpointPort{{Name: name, Protocol: model.TCP, Port: echoPort}},
			}
			for _, p := range pods[:n] {
				slice.Hosts = append(slice.Hosts, model.Host{Address: p.Address(f), Ready: true, Place: model.OnNode(p.NodeName)})
			}
			s.Slices = append(s.Slices, slice)
		}
	}
	return s
}

// applied commits a ruleset on the node and returns what the kernel then has.
func applied(t *testing.T, l *netlab.Lab, rs *nft.Ruleset) (current *nft.Ruleset) {
	t.Helper()
	err := l.Node.Do(func() error {
		k, err := kernel.Open()
		if err != nil {
			return err
		}
		if _, err := apply.New(k, slog.New(slog.DiscardHandler)).Apply(nft.FromNothing(rs)); err != nil {
			return errors.Join(err, k.Close())
		}
		current, _, err = k.Read()
		return errors.Join(err, k.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// TestSourceHash predicts the endpoint of each client, and whether it sees the
// client's address, and then connects. It needs root.
func TestSourceHash(t *testing.T) { predictClients(t, model.SourceHash) }

// TestMaglev does the same for a table.
func TestMaglev(t *testing.T) { predictClients(t, model.Maglev) }

func predictClients(t *testing.T, scheduler model.Scheduler) {
	l := newLab(t)
	s := hashed(l)
	s.Services[0].Scheduler = scheduler
	config := model.Config{NodeName: l.Node.Name, ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}
	rs := applied(t, l, render.Render(model.Resolve(s, config)))
	pods := slices.Concat(l.Pods, l.Remote)
	for _, f := range model.Families {
		for _, from := range append(pods, l.Client, l.Node) {
			for _, port := range s.Services[0].Ports {
				ip, _ := s.Services[0].ClusterIP(f)
				p := Packet{Source: from.Address(f), Destination: ip, Protocol: model.TCP, Port: port.Port}
				r := Explain(rs.Table(f), p, LocalAddresses(s, config))
				if len(r.Outcomes) != 1 || r.Outcomes[0].Verdict != Forward {
					t.Fatalf("%s: %q", r.Packet, briefs(r))
				}
				if slices.Contains(l.Remote, from) && r.Outcomes[0].Endpoint.Addr() == p.Source {
					continue // meets itself on its own node, which the laboratory leaves out
				}
				compare(t, l, from, r)
			}
		}
	}
}

// compare connects and compares what happens with a result.
func compare(t *testing.T, l *netlab.Lab, from *netlab.Host, r *Result) {
	t.Helper()
	got, err := from.Ask("tcp", netip.AddrPortFrom(r.Packet.Destination, r.Packet.Port), 0)
	if err != nil {
		t.Errorf("%s: %v", r.Packet, err)
		return
	}
	o := r.Outcomes[0]
	pods := slices.Concat(l.Pods, l.Remote)
	i := slices.IndexFunc(pods, func(p *netlab.Host) bool { return p.Name == got.Name })
	if i < 0 || pods[i].Address(model.FamilyOf(o.Endpoint.Addr())) != o.Endpoint.Addr() {
		t.Errorf("%s: %s answers, predicted was %s", r.Packet, got.Name, o.Endpoint)
	}
	if masqueraded := l.IsNode(got.Client); masqueraded != (o.Masquerade != "") {
		t.Errorf("%s: the endpoint sees %s, predicted was %q", r.Packet, got.Client, o.Masquerade)
	}
}

// TestBoundInKernel reads the binding of a client back and predicts its next
// connections. It needs root.
func TestBoundInKernel(t *testing.T) {
	l := newLab(t)
	s := hashed(l)
	s.Services[0].Scheduler, s.Services[0].AffinityTimeout = model.RoundRobin, time.Minute
	config := model.Config{NodeName: l.Node.Name, ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}
	rs := render.Render(model.Resolve(s, config))
	applied(t, l, rs)
	for _, f := range model.Families {
		ip, _ := s.Services[0].ClusterIP(f)
		if _, err := l.Client.Ask("tcp", netip.AddrPortFrom(ip, 6), 0); err != nil {
			t.Fatal(err)
		}
		p := Packet{Source: l.Client.Address(f), Destination: ip, Protocol: model.TCP, Port: 6}
		table := applied(t, l, rs).Table(f)
		if err := l.Node.Do(func() error {
			k, err := kernel.Open()
			if err != nil {
				return err
			}
			return errors.Join(k.AddBinding(table, p.Source, p.Frontend()), k.Close())
		}); err != nil {
			t.Fatal(err)
		}
		r := Explain(table, p, LocalAddresses(s, config))
		if len(r.Outcomes) != 1 || !r.Outcomes[0].Bound || r.Outcomes[0].Remember != time.Minute {
			t.Fatalf("%s: %q", r.Packet, briefs(r))
		}
		for range 3 {
			compare(t, l, l.Client, r)
		}
	}
}
