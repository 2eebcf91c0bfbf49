package report

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestStarting: 3.72. The documents name endpoints whose share is smaller because they start
// slowly, and no others.
func TestStarting(t *testing.T) {
	full := time.Now().Add(time.Minute)
	host := func(a string) model.Host {
		return model.Host{Address: netip.MustParseAddr(a), Ready: true, Serving: true}
	}
	s := &model.Service{Name: web, NoClusterIP: true, Balance: true, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		External: &model.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10")}},
		Extras: &model.Extras{SlowStart: time.Minute, Starting: []model.Starting{
			{Endpoint: netip.MustParseAddrPort("10.0.0.2:8080"), Part: 3, Full: full}, {Endpoint: netip.MustParseAddrPort("[fd00::1]:8080"), Part: 3, Full: full}}}}
	ports := []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}
	world := &model.Snapshot{Nodes: []*model.Node{{Name: "node-1"}}, Services: []*model.Service{s}, Slices: []*model.EndpointSlice{
		{Namespace: web.Namespace, Name: "a", Service: web.Name, Family: model.IPv4, Ports: ports, Hosts: []model.Host{host("10.0.0.1"), host("10.0.0.2")}},
		{Namespace: web.Namespace, Name: "b", Service: web.Name, Family: model.IPv6, Ports: ports, Hosts: []model.Host{host("fd00::1")}}, // alone
	}}
	d, _ := views(world)
	var found []string
	for _, e := range d.Ports[0].Endpoints {
		if e.Starting != nil {
			found = append(found, e.Address)
			if e.Starting.Part != 0.3 || !e.Starting.Full.Equal(full) || e.Weight != 1 || e.Inside.Slots != 3 {
				t.Errorf("%s: %+v, weight %d, %d slots", e.Address, e.Starting, e.Weight, e.Inside.Slots)
			}
		}
	}
	if got := strings.Join(found, " "); got != "10.0.0.2:8080" {
		t.Errorf("%s start", got)
	}
	routing := model.Resolve(world, model.Config{NodeName: "node-1"})
	live := newTable(routing, Connections{}, false, nil)
	if live.totals.Starting != 1 || live.services[0].StartingCount != 1 {
		t.Errorf("live %+v, %+v", live.totals, live.services)
	}
	for filter, want := range map[string]int{"": 1, "other": 0} {
		f := &api.Filter{}
		if filter != "" {
			f.Names = []string{filter}
		}
		r := new(report)
		r.addStarting(routing.Routes, time.Now(), f)
		if len(r.Starting) != want || r.StartingCount != want || want > 0 && (r.Starting[0].Address != "10.0.0.2:8080" || r.Starting[0].Object() != "Balance shop/web") {
			t.Errorf("filter %q: %+v, %d in all", filter, r.Starting, r.StartingCount)
		}
	}
}
