package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// frontends returns one of each kind in each family.
func (x *fixture) frontends(s *service) (all []netip.AddrPort) {
	for _, f := range model.Families {
		all = append(all, s.clusterIP(f), s.nodePort(x.Lab, f), balancer(f, 1))
	}
	return all
}

// 9.2, 9.3, 9.4: a client with one long-lived socket moves off an endpoint that
// is gone, through every kind of frontend, and reports the duration (9.12).
// TCP connections stay (P58).
func TestClientMovesOffGoneEndpoint(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	x.sync(web)
	var udp, tcp []*netlab.Flow
	for _, to := range x.frontends(web) {
		udp, tcp = append(udp, x.open("udp", to)), append(tcp, x.open("tcp", to))
	}
	web.pods = x.Pods[1:]
	x.sync(web)
	if x.lists != 2 || x.deleted != len(udp) {
		t.Errorf("%d listings, %d deleted, want one for each family, and %d", x.lists, x.deleted, len(udp))
	}
	for i, to := range x.frontends(web) {
		x.answersFrom(udp[i], x.Pods[1], to)
		x.answersFrom(tcp[i], x.Pods[0], to)
	}
	if got := x.log.String(); strings.Count(got, "connections=3") != 2 {
		t.Errorf("log:\n%s\nwant a line with three connections for each family", got)
	}
}

// 9.8: to terminate is no reason to move; to stop serving is.
func TestTerminatingEndpointKeepsFlows(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1]}
	x.sync(web)
	f := x.open("udp", web.clusterIP(model.IPv4))

	web.pods, web.terminating = x.Pods[1:], x.Pods[:1]
	x.sync(web)
	x.answersFrom(f, x.Pods[0], "terminating")

	web.terminating, web.dead = nil, x.Pods[:1]
	x.sync(web)
	x.answersFrom(f, x.Pods[1], "not serving")
}

// 9.5: the address is the same, the port is not (P64).
func TestEndpointAtAnotherPort(t *testing.T) {
	x := newFixture(t, Config{})
	x.echo(x.Pods[0], 8081)
	web := &service{number: 1, pods: x.Pods[:1]}
	x.sync(web)
	f := x.open("udp", web.clusterIP(model.IPv4))
	tcp := x.open("tcp", web.clusterIP(model.IPv4))
	web.port = 8081
	x.sync(web)
	x.answersFrom(f, x.Pods[0], "another port")
	x.answersFrom(tcp, x.Pods[0], "TCP to the old port")
	for p, port := range map[model.Protocol]uint16{model.UDP: 8081, model.TCP: echoPort} {
		if got, _ := x.flowTo(p, web.clusterIP(model.IPv4)); got.Answers.Port() != port {
			t.Errorf("%s is answered from %s, want port %d", p, got.Answers, port)
		}
	}
}

// 9.1, 9.5: flows from before there were rules for them are taken up: of a new
// Service (P63), and of an address that a Service gets while its slices stay as
// they are (P67).
func TestFlowFromBeforeTheRules(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	api := &service{number: 2, pods: x.Pods[1:]}
	x.sync(api)
	var early []*netlab.Flow
	for _, to := range x.frontends(web) {
		f := x.dial("udp", to, 0)
		if to.Addr() != x.Node.Address(model.FamilyOf(to.Addr())) {
			f = x.unanswered(to)
		}
		early = append(early, f)
	}
	late := [2]*netlab.Flow{x.unanswered(balancer(model.IPv4, 2)), x.unanswered(balancer(model.IPv6, 2))}
	for _, to := range []netip.AddrPort{web.clusterIP(model.IPv4), balancer(model.IPv6, 2)} {
		if f, ok := x.flowTo(model.UDP, to); !ok || f.Answers != to {
			t.Fatalf("entry %+v, want one that is not translated", f)
		}
	}
	x.sync(api, web)
	for i, to := range x.frontends(web) {
		x.answersFrom(early[i], x.Pods[0], to)
	}
	web.balancers = append(web.balancers, balancers(2)...)
	x.sync(api, web)
	for _, f := range late {
		x.answersFrom(f, x.Pods[0], "new address")
	}
}

// 9.6: a Service that is scaled to zero lets go of its clients, which are
// refused, and takes them up again.
func TestScaleToZeroAndBack(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	x.sync(web)
	var flows []*netlab.Flow
	for _, to := range x.frontends(web) {
		flows = append(flows, x.open("udp", to))
	}
	web.pods = nil
	x.sync(web)
	for i, to := range x.frontends(web) {
		if got, err := flows[i].Ask(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %+v, %v, want ECONNREFUSED", to, got, err)
		}
		if f, ok := x.flowTo(model.UDP, to); ok {
			t.Errorf("entry %+v, want none of a packet that was rejected", f)
		}
	}
	web.pods = x.Pods[1:]
	x.sync(web)
	for i, to := range x.frontends(web) {
		x.answersFrom(flows[i], x.Pods[1], to)
	}
}

// 9.1: a Service goes away, and its flows with it; another one gets the same
// ClusterIP.
func TestServiceMadeAnew(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1]}
	api := &service{number: 2, pods: x.Pods[:1]}
	x.sync(web, api)
	f, other := x.open("udp", web.clusterIP(model.IPv4)), x.open("udp", api.clusterIP(model.IPv4))
	entry, _ := x.flowTo(model.UDP, api.clusterIP(model.IPv4))
	x.sync(api)
	if f, ok := x.flowTo(model.UDP, web.clusterIP(model.IPv4)); ok {
		t.Errorf("entry %+v of a Service that is gone", f)
	}
	web.pods = x.Pods[1:]
	x.sync(web, api)
	x.answersFrom(f, x.Pods[1], "created again")
	x.answersFrom(other, x.Pods[0], "another Service")
	if after, _ := x.flowTo(model.UDP, api.clusterIP(model.IPv4)); after != entry {
		t.Errorf("entry of another Service is %+v, was %+v", after, entry)
	}
}

// 9.1: one address of a Service goes away; flows through the others stay.
func TestAddressTakenAway(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: append(balancers(1), balancers(2)...)}
	x.sync(web)
	x.open("udp", balancer(model.IPv6, 1))
	x.open("udp", balancer(model.IPv6, 2))
	web.balancers = balancers(1)
	x.sync(web)
	for n, want := range map[int]bool{1: true, 2: false} {
		if _, ok := x.flowTo(model.UDP, balancer(model.IPv6, n)); ok != want {
			t.Errorf("entry of %s: %v, want %v", balancer(model.IPv6, n), ok, want)
		}
	}
}

// 9.1: a restart ends no connection, and finds endpoints that left in between.
func TestRestart(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	x.sync(web)
	var flows []*netlab.Flow
	for _, to := range x.frontends(web) {
		flows = append(flows, x.open("udp", to))
	}
	x.restart()
	x.sync(web)
	if x.lists != 2 || x.deleted != 0 {
		t.Errorf("after a restart: %d listings, %d deleted, want 2 and none", x.lists, x.deleted)
	}
	web.pods = x.Pods[1:]
	x.restart()
	x.sync(web)
	if x.deleted != len(flows) {
		t.Errorf("after a restart: %d deleted, want %d", x.deleted, len(flows))
	}
	for i, to := range x.frontends(web) {
		x.answersFrom(flows[i], x.Pods[1], to)
	}
}

// 9.4, 9.7: what does not go through a frontend is left alone: the number of a
// NodePort on an address that is not one of the node (P66), a flow to an
// endpoint without a Service, another port of a Service's address.
func TestUnrelatedFlowsStay(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1], balancers: balancers(1)}
	x.sync(web)
	x.echo(x.Pods[0], nodePort+1)
	otherPort := netip.AddrPortFrom(balancer(model.IPv4, 1).Addr(), servicePort+1)
	x.unanswered(otherPort)
	unrelated := []netip.AddrPort{otherPort}
	for _, f := range model.Families {
		for _, port := range []uint16{echoPort, nodePort + 1} {
			to := netip.AddrPortFrom(x.Pods[0].Address(f), port)
			x.open("udp", to)
			unrelated = append(unrelated, to)
		}
	}
	before := make(map[netip.AddrPort]Flow)
	for _, to := range unrelated {
		before[to], _ = x.flowTo(model.UDP, to)
	}
	x.open("udp", web.clusterIP(model.IPv4))
	web.pods = x.Pods[1:]
	x.sync(web)
	if x.deleted != 1 {
		t.Errorf("%d deleted, want the one that goes through the Service", x.deleted)
	}
	for _, to := range unrelated {
		if f, ok := x.flowTo(model.UDP, to); !ok || f != before[to] {
			t.Errorf("entry of %s is %+v, was %+v", to, f, before[to])
		}
	}
}

// 9.1: what does not concern UDP, or does not change who serves, does not even
// list the entries (P29).
func TestNothingToDo(t *testing.T) {
	x := newFixture(t, Config{})
	dns := &service{number: 1, pods: x.Pods, only: []model.Protocol{model.UDP}}
	web := &service{number: 2, only: []model.Protocol{model.TCP}}
	for _, step := range []struct {
		name   string
		change func()
		lists  int
	}{
		{"no UDP", func() { dns = nil }, 0},
		{"UDP appears", func() { dns = &service{number: 1, pods: x.Pods, only: []model.Protocol{model.UDP}} }, 2},
		{"nothing changes", func() {}, 0},
		{"TCP endpoints change", func() { web.pods = x.Pods }, 0},
		{"an endpoint terminates", func() { dns.pods, dns.terminating = x.Pods[:1], x.Pods[1:] }, 0},
		{"it is gone", func() { dns.terminating = nil }, 2},
		{"an address of one family appears", func() { dns.balancers = balancers(1)[:1] }, 1},
		{"the last UDP port goes away", func() { dns = nil }, 2},
		{"it stays away", func() {}, 0},
	} {
		step.change()
		services := []*service{web}
		if dns != nil {
			services = append(services, dns)
		}
		if x.sync(services...); x.lists != step.lists {
			t.Errorf("%s: %d listings, want %d", step.name, x.lists, step.lists)
		}
	}
}

// 9.3: with the option, TCP connections to an endpoint that is gone are reset
// when the client speaks next, both where another one serves and where none
// does. Others stay, and so do those that were never translated.
func TestTCP(t *testing.T) {
	x := newFixture(t, Config{TCP: true})
	web := &service{number: 1, pods: x.Pods, balancers: balancers(1)}
	x.sync(web)
	for _, left := range []int{1, 0} {
		t.Run(fmt.Sprint(left, " left"), func(t *testing.T) {
			web.pods = x.Pods
			x.sync(web)
			flows := make(map[*netlab.Flow]string)
			for _, to := range x.frontends(web) {
				for range x.Pods {
					f := x.dial("tcp", to, 0)
					answer, err := f.Ask()
					if err != nil {
						t.Fatal(err)
					}
					flows[f] = answer.Name
				}
			}
			web.pods = x.Pods[:left]
			x.sync(web)
			for f, pod := range flows {
				got, err := f.Ask()
				if serves := left == 1 && pod == x.Pods[0].Name; serves != (err == nil) || err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("connection to %s: %+v, %v, want ECONNRESET unless it serves", pod, got, err)
				}
			}
		})
	}
}

// 9.3: the reset comes from the kernel taking up the connection in its middle.
// Where that is turned off there is silence.
func TestTCPNotTakenUp(t *testing.T) {
	x := newFixture(t, Config{TCP: true})
	err := x.Node.Do(func() error {
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", []byte("0"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	web := &service{number: 1, pods: x.Pods[:1]}
	x.sync(web)
	f := x.open("tcp", web.clusterIP(model.IPv4))
	web.pods = x.Pods[1:]
	x.sync(web)
	f.Within(500 * time.Millisecond)
	if got, err := f.Ask(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %+v, %v, want silence", got, err)
	}
}

// 9.2: clients that never stop sending leave no entry to an endpoint that was
// gone before the cleanup, whatever packets do while it runs.
func TestBusyClients(t *testing.T) {
	x := newFixture(t, Config{})
	web := &service{number: 1, pods: x.Pods[:1]}
	x.sync(web)
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		f := x.dial("udp", web.clusterIP(model.Families[i%2]), 10*time.Millisecond)
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					// Whether an answer comes, and from where, does not matter here.
					_, _ = f.Ask()
				}
			}
		})
	}
	defer clients.Wait()
	defer close(stop)
	for i := range 30 {
		to := i%3 - 1 // -1: no endpoint
		web.pods = nil
		if to >= 0 {
			web.pods = x.Pods[to : to+1]
		}
		x.sync(web)
		for _, family := range model.Families {
			for _, f := range x.flows(family, model.UDP) {
				// Without endpoints, a packet during the change of the rules may leave an entry.
				serves := f.Answers == f.Dialled
				if to >= 0 {
					serves = f.Answers.Addr() == x.Pods[to].Address(family)
				}
				if f.Dialled == web.clusterIP(family) && !serves {
					t.Errorf("step %d: %+v after the cleanup", i, f)
				}
			}
		}
	}
}
