package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// limited returns the i-th Service, which is as old as its number says, with limits.
func limited(i int, l Limits) ServiceState {
	return ServiceState{Service: &Service{
		Name: ServiceName{"default", fmt.Sprint("service-", i)}, Created: int64(1_000_000 - i),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		Ports:      []ServicePort{{Protocol: TCP, Port: 80}}, Extras: &Extras{Limits: l},
	}}
}

// unlimitedServices returns the names of Services whose limits per client do not apply.
func unlimitedServices(r *Router) (out []string) {
	for _, n := range r.Notices() {
		if n.Reason == ManyLimits {
			out = append(out, n.Object.Name)
		}
	}
	return out
}

// TestManyLimits: 4.94. The youngest Services beyond the budget have no limit per client, whatever its value; their other
// limits apply.
func TestManyLimits(t *testing.T) {
	r, all := NewRouter(), make(map[ServiceName]ServiceState)
	for i := range budget.ClientLimits + 2 {
		s := limited(i, Limits{Connections: 7, ConnectionsPerClient: uint32(i + 1)})
		all[s.Service.Name] = s
	}
	same := limited(5000, Limits{ConnectionsPerClient: 50})
	r.SetServices(all)
	r.SetServices(map[ServiceName]ServiceState{same.Service.Name: same})
	if got := unlimitedServices(r); !slices.Equal(got, []string{"service-0", "service-1", "service-2"}) {
		t.Errorf("without limits per client are %v", got)
	}
	for f, want := range map[Frontend]Limits{
		{Address: netip.MustParseAddr("10.96.0.1"), Protocol: TCP, Port: 80}:    {Connections: 7},
		{Address: netip.MustParseAddr("10.96.0.3"), Protocol: TCP, Port: 80}:    {Connections: 7, ConnectionsPerClient: 4},
		{Address: netip.MustParseAddr("10.96.19.136"), Protocol: TCP, Port: 80}: {ConnectionsPerClient: 50},
	} {
		if got := r.Serves(f).Service.Extra().Limits; got != want {
			t.Errorf("%s has %+v, want %+v", f, got, want)
		}
	}
	name := ServiceName{"default", "service-77"}
	changes := r.SetServices(map[ServiceName]ServiceState{name: {}})
	if got := unlimitedServices(r); !slices.Equal(got, []string{"service-0", "service-1"}) || len(changes) != 2 {
		t.Errorf("after a limit has gone: without limits per client are %v, and %d frontends change", got, len(changes))
	}
}

// TestManyLimitsFollow: which limits apply depends on the Services, not on the order in
// which they come and go (13.15).
func TestManyLimitsFollow(t *testing.T) {
	rnd, r := rand.New(rand.NewPCG(1, 0)), NewRouter()
	current, most := make(map[ServiceName]ServiceState), 0
	for range 30 {
		changed := make(map[ServiceName]ServiceState)
		for range 600 {
			s := limited(rnd.IntN(1800), Limits{ConnectionsPerClient: uint32(rnd.IntN(1200)), RatePerClient: Rate{Amount: uint32(rnd.IntN(400)), Burst: 1}})
			name := s.Service.Name
			if rnd.IntN(4) == 0 {
				s.Service = nil
			}
			changed[name], current[name] = s, s
		}
		r.SetServices(changed)
		fresh := NewRouter()
		fresh.SetServices(current)
		if !reflect.DeepEqual(fresh.Routing(), r.Routing()) {
			t.Fatalf("unlimited are %v, and in a new router %v", unlimitedServices(r), unlimitedServices(fresh))
		}
		most = max(most, len(unlimitedServices(r)))
	}
	if most == 0 {
		t.Error("all limits applied at all times")
	}
}
