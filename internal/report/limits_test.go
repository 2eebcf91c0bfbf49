package report

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestLimitCounts: counters of the kernel that start again do not reset the sums, and the
// frontends of a service port are added up.
func TestLimitCounts(t *testing.T) {
	limited := &model.Service{Name: model.ServiceName{Namespace: "default", Name: "web"}, Extras: &model.Extras{Limits: model.Limits{Connections: 7}}}
	port := model.ServicePort{Protocol: model.TCP, Port: 80}
	frontend := func(a string) model.Frontend {
		return model.Frontend{Address: netip.MustParseAddr(a), Protocol: model.TCP, Port: 80}
	}
	one, two, other := frontend("203.0.113.1"), frontend("203.0.113.2"), frontend("203.0.113.3")
	var routes []model.Route
	for _, f := range []model.Frontend{one, two} {
		routes = append(routes, model.Route{Frontend: f, Kind: model.LoadBalancerIP, Service: limited, Port: &port})
	}
	var c limitCounts
	drops := func(f model.Frontend, n uint64) counters.Limit {
		return counters.Limit{Frontend: f.ID(), Kind: model.LimitConnections, Packets: n}
	}
	for _, step := range []struct {
		name    string
		reading []counters.Limit
		routes  []model.Route
		want    []uint64
	}{
		{"first", []counters.Limit{drops(one, 3), drops(two, 4), drops(other, 5)}, routes, []uint64{7}},
		{"growth", []counters.Limit{drops(one, 5), drops(two, 4)}, routes, []uint64{9}},
		{"the kernel's counter starts again", []counters.Limit{drops(one, 1), drops(two, 4)}, routes, []uint64{10}},
		{"a frontend without its limit", []counters.Limit{drops(one, 1)}, routes, []uint64{10}},
		{"no limits", nil, nil, nil},
		{"limits again", []counters.Limit{drops(one, 2)}, routes, []uint64{2}},
	} {
		c.add(step.reading, step.routes)
		var got []uint64
		for k, n := range c.ports {
			got = append(got, n)
			if k.limit != model.LimitConnections || k.kind != model.LoadBalancerIP || k.port.Service != limited.Name {
				t.Errorf("%s: counted for %+v", step.name, k)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
