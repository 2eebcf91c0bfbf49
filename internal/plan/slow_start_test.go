package plan_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// TestSlowStartSteps: 3.71. Between its first step and the last one, a slow start of one of ten
// endpoints changes one slot of each frontend and what says how many there are. It ends with the
// rules that the Service has without it.
func TestSlowStartSteps(t *testing.T) {
	const endpoints, frontends = 10, 2
	address := netip.MustParseAddr
	rules := func(part uint8, slow time.Duration) *model.Routing {
		s := &model.Service{Name: model.ServiceName{Namespace: "default", Name: "web"}, NoClusterIP: true, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
			External: &model.External{LoadBalancerIPs: []netip.Addr{address("203.0.113.10"), address("203.0.113.11")}}, Extras: &model.Extras{SlowStart: slow}}
		slice := &model.EndpointSlice{Namespace: "default", Name: "a", Service: "web", Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
		for i := range endpoints {
			slice.Hosts = append(slice.Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ready: true, Serving: true})
		}
		if part > 0 {
			s.Extras.Starting = []model.Starting{{Endpoint: netip.MustParseAddrPort("10.0.0.3:8080"), Part: part}}
		}
		return model.Resolve(&model.Snapshot{Services: []*model.Service{s}, Slices: []*model.EndpointSlice{slice}}, model.Config{NodeName: "node-1"})
	}
	without := render.Render(rules(0, 0))
	current := render.Render(rules(1, time.Minute))
	for part := uint8(2); part < model.StartParts; part++ {
		next := plan.Settle(current, render.Render(rules(part, time.Minute)))
		// A slot of each frontend, its place in a longer lane, and that lane.
		if n := len(plan.Diff(current, next).WithoutIdleLanes().Changes); n == 0 || n > 5*frontends {
			t.Errorf("part %d: %d changes", part, n)
		}
		current = next
	}
	end := plan.Settle(current, render.Render(rules(0, time.Minute)))
	if p := plan.Diff(without, plan.Settle(without, render.Render(rules(0, time.Minute)))); !p.Empty() {
		t.Errorf("with a slow start in which none starts: %s", p.Summary())
	}
	if n := len(plan.Diff(current, end).Changes); n < frontends*(endpoints-1)*(model.StartParts-1) {
		t.Errorf("%d changes at the end: are there still slots of the slow start?", n)
	}
}
