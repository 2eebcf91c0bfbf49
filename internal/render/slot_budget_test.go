package render_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// wide returns a Service with up to so many frontends of every kind, and its slices. Half
// of its endpoints are on node-1.
func wide(r *rand.Rand, i, most int) (*model.Service, []*model.EndpointSlice) {
	s := &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: fmt.Sprint("service-", i)}, Created: int64(1 + i),
		Scheduler: model.Maglev + model.Scheduler(r.IntN(2)), ExternalPolicy: model.Policy(r.IntN(2)), InternalPolicy: model.Policy(r.IntN(2)),
		Extras: &model.Extras{MaglevSize: model.MaglevSizes[r.IntN(len(model.MaglevSizes))]}, External: &model.External{},
	}
	both := []*model.EndpointSlice{
		{Namespace: "default", Service: s.Name.Name, Family: model.IPv4}, {Namespace: "default", Service: s.Name.Name, Family: model.IPv6},
	}
	address := func(f model.Family, kind, n byte) netip.Addr {
		if f == model.IPv4 {
			return netip.AddrFrom4([4]byte{kind, byte(i >> 8), byte(i), n})
		}
		return netip.AddrFrom16([16]byte{0xfd, kind, 13: byte(i >> 8), 14: byte(i), 15: n})
	}
	for n, f := range model.Families {
		s.ClusterIPs = append(s.ClusterIPs, address(f, 10, 1))
		for k := range r.IntN(3) {
			s.External.ExternalIPs = append(s.External.ExternalIPs, address(f, 20, byte(k)))
			s.External.LoadBalancerIPs = append(s.External.LoadBalancerIPs, address(f, 30, byte(k)))
		}
		for k := range byte(4) {
			both[n].Hosts = append(both[n].Hosts, model.Host{Address: address(f, 40, k), Ready: true, Serving: true, Place: model.OnNode(fmt.Sprint("node-", k%2))})
		}
	}
	for k := range 1 + r.IntN(most) {
		name := fmt.Sprint("p", k)
		s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(8000 + k), NodePort: uint16(r.IntN(2) * (30000 + 50*i + k))})
		for _, slice := range both {
			slice.Ports = append(slice.Ports, model.EndpointPort{Name: name, Protocol: model.TCP, Port: 8080})
		}
	}
	for k := range r.IntN(most) {
		first := uint16(20000 + 10*k)
		s.Extras.Ranges = append(s.Extras.Ranges, model.PortRange{
			ServicePort: model.ServicePort{Name: fmt.Sprintf("%d-%d/udp", first, first+5), Protocol: model.UDP, Port: first}, Last: first + 5})
	}
	for k := range r.IntN(most) {
		one := model.ServicePort{Name: fmt.Sprint("one-", k), Protocol: model.TCP, Port: uint16(9000 + k)}
		s.Extras.Ranges = append(s.Extras.Ranges, model.PortRange{ServicePort: one, Target: 8080})
	}
	s.AffinityTimeout = time.Duration(r.IntN(2)) * time.Hour
	return s, both
}

// slotsByService counts the elements of the maps of endpoints.
func slotsByService(r *model.Routing) map[string]int {
	services := make(map[nft.Key]string)
	for i := range r.Routes {
		services[nft.FrontendKey(r.Routes[i].Frontend)] = r.Routes[i].Service.Name.Name
	}
	out := make(map[string]int)
	for _, table := range render.Render(r).Tables {
		for _, set := range table.Sets {
			if !slices.Contains([]string{nft.EndpointsMap, nft.RangeEndpointsMap, nft.RangePortEndpointsMap}, set.Name) {
				continue
			}
			for _, e := range set.Elements {
				e.Key.Slot = 0
				out[services[e.Key]]++
			}
		}
	}
	return out
}

// TestSlotBudgets: 3.60. However many frontends Services have and whatever tables they ask
// for, the elements stay within the budgets.
func TestSlotBudgets(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := &model.Snapshot{Nodes: []*model.Node{{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}}
		var both []*model.EndpointSlice
		s.Services = make([]*model.Service, 1)
		s.Services[0], both = wide(r, int(seed), 1+r.IntN(12))
		s.Slices = both
		for name, n := range slotsByService(model.Resolve(s, model.Config{NodeName: "node-1"})) {
			if n > budget.MaglevSlots {
				t.Errorf("seed %d: %s has %d slots", seed, name, n)
			}
		}
	}
}

// TestSlotBudgetOfNode: 3.60. Services that have tables of Maglev together stay within the
// budget of the node.
func TestSlotBudgetOfNode(t *testing.T) {
	s := snapshot(1500, 2)
	r := model.Resolve(s, model.Config{NodeName: "node-1", Scheduler: model.Maglev})
	tables, all := 0, 0
	for _, n := range slotsByService(r) {
		if all += n; n > 2 {
			tables += n
		}
	}
	if tables > budget.MaglevSlotsNode || tables < budget.MaglevSlotsNode-250 || all-tables < 2*500 {
		t.Errorf("%d slots, of them %d in tables", all, tables)
	}
}
