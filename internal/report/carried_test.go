package report

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

var (
	dialledWeb   = model.Frontend{Address: netip.MustParseAddr("10.96.0.1"), Protocol: model.TCP, Port: 80}
	servicesMap  = &nft.Set{Name: nft.ServicesMap, Counters: true}
	endpointsMap = &nft.Set{Name: nft.EndpointsMap, Counters: true}
)

// stub is a kernel with one frontend, of which reading calls meanwhile.
type stub struct {
	KernelReader
	frontend  uint64
	endpoints []counters.Endpoint
	meanwhile func()
}

func (k *stub) FrontendCounts() ([]counters.Frontend, error) {
	n := k.frontend
	if k.meanwhile != nil {
		k.meanwhile()
	}
	return []counters.Frontend{{Frontend: dialledWeb.ID(), Connections: n}}, nil
}

func (k *stub) EndpointCounts([]model.Frontend) ([]counters.Endpoint, error) {
	return k.endpoints, nil
}

// slot is the element of an endpoint, by its number.
func slot(n int) nft.Element {
	key := nft.FrontendKey(dialledWeb)
	key.Slot = uint32(n + 1)
	return nft.Element{Key: key, Value: nft.Value{Endpoint: endpointAt(n)}}
}

func endpointAt(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 8080)
}

// end deletes or replaces an element whose counter is n.
func (s *Server) end(verb plan.Verb, set *nft.Set, e nft.Element, n uint64, err error) {
	p := &plan.Plan{Changes: []plan.Change{{Verb: verb, Set: set, Old: &e}}}
	s.Committing(p, func(*plan.Plan) ([]counters.Element, error) {
		return []counters.Element{{Set: set, Element: e, Connections: n}}, nil
	})(err)
}

func newCountingServer(k *stub) *Server {
	routing := &model.Routing{Routes: []model.Route{{Frontend: dialledWeb, Service: &model.Service{}, Port: &model.ServicePort{Protocol: model.TCP}, Choice: &model.Choice{}}}}
	s := New(Config{Counted: true, Kernel: k, Log: slog.New(slog.DiscardHandler), Agent: FakeAgent{Routes: func() *model.Routing { return routing }}})
	s.history.good = true
	return s
}

// TestCountsWhileTheyEnd: a change while the counters are read is neither lost nor counted
// twice, also if changes never cease.
func TestCountsWhileTheyEnd(t *testing.T) {
	k := &stub{frontend: 3}
	s := newCountingServer(k)
	changes := 0
	k.meanwhile = func() {
		if changes < readAttempts { // the next reading holds them up
			changes++
			s.end(plan.Replace, servicesMap, nft.Element{Key: nft.FrontendKey(dialledWeb)}, k.frontend+2, nil)
			k.frontend = 1
		}
	}
	for range 2 {
		if _, c, err := s.Connections(); err != nil || c.Total != 5+3*2+1 || c.Frontends[dialledWeb.ID()] != c.Total {
			t.Fatalf("%+v, %v: want 12", c, err)
		}
	}
	k.frontend = 4
	if _, c, _ := s.Connections(); c.Total != 15 {
		t.Errorf("%+v: want 15", c)
	}
}

// TestCarriedEndpoints: counts of a transaction that failed are not carried, and those of a
// frontend that is deleted are dropped, also if its endpoints follow later.
func TestCarriedEndpoints(t *testing.T) {
	k := &stub{endpoints: []counters.Endpoint{{Frontend: dialledWeb, Endpoint: endpointAt(0), Connections: 2}}}
	s := newCountingServer(k)
	expect := func(when string, want map[netip.AddrPort]uint64) {
		t.Helper()
		counts, err := s.EndpointCounts([]model.Frontend{dialledWeb})
		got := make(map[netip.AddrPort]uint64)
		for _, n := range counts {
			got[n.Endpoint] += n.Connections
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	s.end(plan.Replace, endpointsMap, slot(0), 7, errors.New("refused"))
	expect("after a failure", map[netip.AddrPort]uint64{endpointAt(0): 2})
	s.end(plan.Replace, endpointsMap, slot(0), 7, nil)
	s.end(plan.Delete, endpointsMap, slot(1), 4, nil)
	expect("after changes", map[netip.AddrPort]uint64{endpointAt(0): 9, endpointAt(1): 4})
	s.end(plan.Delete, servicesMap, nft.Element{Key: nft.FrontendKey(dialledWeb)}, 13, nil)
	s.end(plan.Delete, endpointsMap, slot(0), 3, nil)
	expect("without the frontend", map[netip.AddrPort]uint64{endpointAt(0): 2})
	s.carried.synced()
	s.end(plan.Delete, endpointsMap, slot(0), 3, nil)
	expect("with it again", map[netip.AddrPort]uint64{endpointAt(0): 5})
}

// TestCarriedIsBounded: endpoints that come and go without end are forgotten.
func TestCarriedIsBounded(t *testing.T) {
	s := newCountingServer(&stub{})
	for i := range 3 * spareCounts {
		s.end(plan.Delete, endpointsMap, slot(i), 1, nil)
		if n := len(s.carried.endpoints[dialledWeb.ID()]); n != s.carried.size || n > spareCounts+1 {
			t.Fatalf("%d counts, and %d as recorded", n, s.carried.size)
		}
	}
}

// TestEndpointSeries: 11.23, service ports that do not fit are counted, and later ones that fit are
// exported.
func TestEndpointSeries(t *testing.T) {
	var routes []model.Route
	for i, n := range []int{budget.EndpointSeries - 10, 11, 10, 1} {
		endpoints := make([]model.Endpoint, n)
		for j := range endpoints {
			endpoints[j].Host = &model.Host{Address: endpointAt(j).Addr()}
		}
		f := dialledWeb
		f.Port += uint16(i)
		routes = append(routes, model.Route{Frontend: f, Service: &model.Service{Name: model.ServiceName{Name: fmt.Sprint(i)}}, Port: &model.ServicePort{}, Choice: &model.Choice{Cluster: endpoints}})
	}
	ports, omitted := portsWithin(budget.EndpointSeries, routes)
	if len(ports) != 2 || omitted != 2 || ports[1][0].Service.Name.Name != "2" {
		t.Errorf("%d service ports, %d omitted", len(ports), omitted)
	}
}
