package report

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// refusable returns a routing with some Services, each with one frontend.
func refusable(frontends map[string]model.Frontend) *model.Routing {
	r := &model.Routing{Wildcards: true}
	for name, f := range frontends {
		s := &model.Service{Name: model.ServiceName{Namespace: "shop", Name: name}}
		r.Routes = append(r.Routes, model.Route{Frontend: f, Service: s, Port: &model.ServicePort{}})
	}
	return r
}

func tcp(address string, port uint16) model.Frontend {
	return model.Frontend{Address: netip.MustParseAddr(address), Protocol: model.TCP, Port: port}
}

func refusals(r model.RefusalReason, f model.Frontend, n uint64) counters.Refusal {
	return counters.Refusal{Reason: r, Dialled: f.ID(), Packets: n}
}

// TestRefusalCounts: 16.6. Refused connections are added up by reason and Service: also those
// to NodePorts on several addresses, to ranges of ports, and to unknown ports. Counters of the
// kernel that start again do not reset the sums, and sums of Services that are gone end.
func TestRefusalCounts(t *testing.T) {
	ports := tcp("10.96.0.3", 8000)
	ports.Last = 8099
	web, node := tcp("10.96.0.1", 80), tcp("0.0.0.0", 30080)
	routing := refusable(map[string]model.Frontend{"web": web, "node": node, "range": ports})
	without := refusable(map[string]model.Frontend{"node": node})
	reading := []counters.Refusal{
		refusals(model.Denied, web, 12), refusals(model.NoEndpoints, web, 3),
		refusals(model.Denied, tcp("192.168.7.1", 30080), 2), refusals(model.Denied, tcp("192.168.7.2", 30080), 3),
		refusals(model.OverRate, ports, 7),
		refusals(model.UnknownPort, model.Frontend{Address: web.Address}, 4),
		refusals(model.UnusedAddress, model.Frontend{Address: netip.IPv4Unspecified(), Protocol: model.UDP}, 9),
		refusals(model.Denied, tcp("10.96.0.9", 80), 100), // of a Service that is gone
	}
	want := map[string]uint64{
		"denied shop/web": 12, "no-endpoints shop/web": 3, "denied shop/node": 5, "rate shop/range": 7, "unknown-port shop/web": 4, "unused-address /": 9,
	}
	var c refusalCounts
	check := func(step string) {
		t.Helper()
		got := make(map[string]uint64)
		for o, n := range c.sums {
			got[o.Reason.String()+" "+o.Service.String()] = n
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	c.add(reading, newDialledServices(routing))
	check("the first reading")
	reading[0].Packets, want["denied shop/web"] = 20, 20
	c.add(reading, newDialledServices(routing))
	check("growth")
	reading[0].Packets, want["denied shop/web"] = 1, 21
	c.add(reading, newDialledServices(routing))
	check("the kernel's counter starts again")
	c.forget(&plan.Plan{Changes: []plan.Change{{Verb: plan.Delete, Family: model.IPv4, Set: nft.Declare(nft.RefusalOf(model.Denied, nft.OfPort))}}})
	reading[0].Packets, want["denied shop/web"] = 5, 26
	reading[2].Packets, reading[3].Packets = 0, 0
	c.add(reading, newDialledServices(routing))
	check("the set of the counters was deleted, and there is a new one")
	want = map[string]uint64{"denied shop/node": 5, "unused-address /": 9}
	c.add(reading, newDialledServices(without))
	check("Services are gone")
}

// TestRefusalSeries: clients cannot make more series than the budget has: connections to further
// Services are counted without one.
func TestRefusalSeries(t *testing.T) {
	frontends := make(map[string]model.Frontend)
	var reading []counters.Refusal
	for i := range uint16(budget.RefusalSeries + 10) {
		f := tcp("10.96.0.1", 1000+i)
		frontends[fmt.Sprint("s", i)] = f
		reading = append(reading, refusals(model.NoEndpoints, f, 1))
	}
	var c refusalCounts
	c.add(reading, newDialledServices(refusable(frontends)))
	if n := c.sums[RefusalOwner{Reason: model.NoEndpoints}]; n != 10 || len(c.sums) != budget.RefusalSeries+1 {
		t.Errorf("%d series; %d connections without a Service, want 10", len(c.sums), n)
	}
}

// TestGoneRefusals: counters of frontends and addresses that no Service has any more are
// removed, and those of addresses that none has stay.
func TestGoneRefusals(t *testing.T) {
	gone := GoneRefusals(refusable(map[string]model.Frontend{"web": tcp("10.96.0.1", 80), "node": tcp("0.0.0.0", 30080)}))
	for _, c := range []struct {
		refusal counters.Refusal
		want    bool
	}{
		{refusals(model.Denied, tcp("10.96.0.1", 80), 1), false},
		{refusals(model.Denied, tcp("10.96.0.1", 81), 1), true},
		{refusals(model.Denied, tcp("192.168.7.1", 30080), 1), false},
		{refusals(model.UnknownPort, model.Frontend{Address: netip.MustParseAddr("10.96.0.1")}, 1), false},
		{refusals(model.UnknownPort, model.Frontend{Address: netip.MustParseAddr("10.96.0.2")}, 1), true},
		{refusals(model.UnusedAddress, model.Frontend{Address: netip.IPv4Unspecified(), Protocol: model.TCP}, 1), false},
	} {
		if got := gone(&c.refusal); got != c.want {
			t.Errorf("%s of %+v is gone: %t", c.refusal.Reason, c.refusal.Dialled, got)
		}
	}
}
