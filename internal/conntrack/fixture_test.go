package conntrack

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	servicePort = 80
	nodePort    = 30080
	echoPort    = 8080
)

func addr(s string) netip.Addr         { return netip.MustParseAddr(s) }
func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// service is a dual-stack Service with a TCP and a UDP port.
type service struct {
	number      byte             // that its addresses end with, and what is added to the NodePort
	pods        []*netlab.Host   // that serve
	terminating []*netlab.Host   // that serve on
	dead        []*netlab.Host   // that do not serve
	balancers   []netip.Addr     // load balancer addresses
	port        uint16           // of the endpoints; 0: the usual one
	only        []model.Protocol // none: both
	sources     *model.Sources   // clients that may connect; nil: all
	ranges      []model.PortRange
}

func (s *service) protocols() []model.Protocol {
	if s.only != nil {
		return s.only
	}
	return []model.Protocol{model.TCP, model.UDP}
}

func (s *service) clusterIP(f model.Family) netip.AddrPort {
	if f == model.IPv6 {
		return netip.AddrPortFrom(addr(fmt.Sprintf("fd00:10:96::%d", s.number)), servicePort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, s.number}), servicePort)
}

func (s *service) nodePort(l *netlab.Lab, f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(l.Node.Address(f), nodePort+uint16(s.number))
}

// balancer returns a load balancer address.
func balancer(f model.Family, n int) netip.AddrPort {
	if f == model.IPv6 {
		return netip.AddrPortFrom(addr(fmt.Sprintf("2001:db8:2::%d", n)), servicePort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}), servicePort)
}

// balancers returns one load balancer address of each family.
func balancers(n int) []netip.Addr {
	return []netip.Addr{balancer(model.IPv4, n).Addr(), balancer(model.IPv6, n).Addr()}
}

// addTo adds the Service and its slices to a snapshot.
func (s *service) addTo(all *model.Snapshot) {
	name := fmt.Sprint("web-", s.number)
	svc := &model.Service{
		Name:       model.ServiceName{Namespace: "default", Name: name},
		ClusterIPs: []netip.Addr{s.clusterIP(model.IPv4).Addr(), s.clusterIP(model.IPv6).Addr()},
		External:   &model.External{LoadBalancerIPs: s.balancers},
		Extras:     &model.Extras{Sources: s.sources, Ranges: s.ranges},
	}
	var ports []model.EndpointPort
	for _, p := range s.protocols() {
		svc.Ports = append(svc.Ports, model.ServicePort{Name: p.String(), Protocol: p, Port: servicePort, NodePort: nodePort + uint16(s.number)})
		ports = append(ports, model.EndpointPort{Name: p.String(), Protocol: p, Port: max(s.port, echoPort)})
	}
	all.Services = append(all.Services, svc)
	for _, f := range model.Families {
		slice := &model.EndpointSlice{Namespace: "default", Name: fmt.Sprint(name, f), Service: name, Family: f, Ports: ports}
		add := func(pods []*netlab.Host, h model.Host) {
			for _, p := range pods {
				h.Address, h.Place = p.Address(f), model.OnNode(p.NodeName)
				slice.Hosts = append(slice.Hosts, h)
			}
		}
		add(s.pods, model.Host{Ready: true, Serving: true})
		add(s.terminating, model.Host{Serving: true, Terminating: true})
		add(s.dead, model.Host{})
		all.Slices = append(all.Slices, slice)
	}
}

// fixture is a node whose kernel follows a list of services.
type fixture struct {
	*netlab.Lab
	t       *testing.T
	applier *apply.Applier
	cleaner *follower
	config  Config
	serving []netip.Addr // where NodePorts are served; none: on the first address of each family
	log     bytes.Buffer
	lists   int // taken by the last sync
	deleted int // by the last sync
}

// newFixture makes a laboratory with two pods that answer. It needs root.
func newFixture(t *testing.T, c Config) *fixture {
	t.Helper()
	t.Parallel()
	l := netlab.TestLab(t, 2)
	x := &fixture{Lab: l, t: t, config: c}
	var conn *kernel.Conn
	if err := l.Node.Do(func() (err error) { conn, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	x.applier = apply.New(conn, slog.New(slog.DiscardHandler))
	x.restart()
	for _, p := range l.Pods {
		x.echo(p, echoPort)
	}
	return x
}

func (x *fixture) echo(h *netlab.Host, port uint16) *netlab.Echo {
	x.t.Helper()
	e, err := h.Echo(port)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { e.Close() })
	return e
}

// restart forgets what the cleaner knows.
func (x *fixture) restart() {
	x.config.Log = slog.New(slog.NewTextHandler(&x.log, nil))
	x.config.Observer = x
	x.cleaner = &follower{Cleaner: New(Netlink{}, x.config)}
}

// Cleaned implements [Observer].
func (x *fixture) Cleaned(_ model.Family, _ time.Duration, deleted int) {
	x.lists++
	x.deleted += deleted
}

// apply makes the rules.
func (x *fixture) apply(services ...*service) *model.Routing {
	x.t.Helper()
	s := &model.Snapshot{Nodes: []*model.Node{{Name: x.Node.Name, Addresses: []netip.Addr{x.Node.IPv4, x.Node.IPv6}}}}
	for _, svc := range services {
		svc.addTo(s)
	}
	c := model.Config{NodeName: x.Node.Name, ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}
	if c.InterfaceAddresses = x.serving; x.serving != nil {
		c.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	r := model.Resolve(s, c)
	if _, err := x.applier.Apply(nft.FromNothing(render.Render(r))); err != nil {
		x.t.Fatal(err)
	}
	return r
}

// sync makes the rules and cleans up.
func (x *fixture) sync(services ...*service) {
	x.t.Helper()
	r := x.apply(services...)
	x.lists, x.deleted = 0, 0
	if err := x.Node.Do(func() error { x.cleaner.follow(r); return nil }); err != nil {
		x.t.Fatal(err)
	}
}

// flows lists what connection tracking of the node knows.
func (x *fixture) flows(f model.Family, p model.Protocol) (all []Flow) {
	x.t.Helper()
	err := x.Node.Do(func() error {
		return Netlink{}.List(f, p, func(f Flow) { all = append(all, f) })
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return all
}

// flowTo returns the one entry of a client that dialled a frontend.
func (x *fixture) flowTo(p model.Protocol, dialled netip.AddrPort) (Flow, bool) {
	x.t.Helper()
	for _, f := range x.flows(model.FamilyOf(dialled.Addr()), p) {
		if f.Dialled == dialled {
			return f, true
		}
	}
	return Flow{}, false
}

// open opens a flow from the client, and checks that it gets an answer.
func (x *fixture) open(network string, to netip.AddrPort) *netlab.Flow {
	x.t.Helper()
	f := x.dial(network, to, 0)
	if _, err := f.Ask(); err != nil {
		x.t.Fatalf("%s %s: %v", network, to, err)
	}
	return f
}

// unanswered opens a UDP flow to an address without a server.
func (x *fixture) unanswered(to netip.AddrPort) *netlab.Flow {
	x.t.Helper()
	f := x.dial("udp", to, 100*time.Millisecond)
	if got, err := f.Ask(); err == nil {
		x.t.Fatalf("%s: %s answers, want no answer", to, got.Name)
	}
	f.Within(0) // an answer to a later question may take longer
	return f
}

func (x *fixture) dial(network string, to netip.AddrPort, wait time.Duration) *netlab.Flow {
	x.t.Helper()
	f, err := x.Client.Open(network, to, wait)
	if err != nil {
		x.t.Fatalf("%s %s: %v", network, to, err)
	}
	x.t.Cleanup(func() { f.Close() })
	return f
}

// answersFrom checks who answers.
func (x *fixture) answersFrom(f *netlab.Flow, pod *netlab.Host, what any) {
	x.t.Helper()
	if got, err := f.Ask(); err != nil || got.Name != pod.Name {
		x.t.Errorf("%v: got %+v, %v, want an answer of %s", what, got, err, pod.Name)
	}
}
