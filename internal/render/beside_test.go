package render_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestStartBeside: beside Services that are left out, the tables have the sets and rules
// that these need, but none of their elements.
func TestStartBeside(t *testing.T) {
	router := model.NewRouter()
	router.Configure(workload.FullConfig(), workload.FullNodes(), workload.FullCIDRs())
	states := make(map[model.ServiceName]model.ServiceState)
	for v := range workload.FullVariants {
		s := workload.Full(fmt.Sprintf("service-%d", v), byte(v+1), v)
		states[s.Service.Name] = s
	}
	router.SetServices(states)
	stays := workload.Full("service-3", 4, 3).Service.Name
	out := slices.DeleteFunc(render.Added(router.Routing()), func(c model.RouteChange) bool { return c.New.Service.Name == stays })
	some := router.Routing()
	some.Revert(out)

	all, alone := namesIn(render.Render(router.Routing())), namesIn(render.Render(some))
	if len(alone) > len(all)-50 {
		t.Fatalf("%d of %d sets and rules are there without these Services: this is no test", len(alone), len(all))
	}
	state, delta := render.StartBeside(some, out)
	if diff := cmp.Diff(all, namesIn(delta.After)); diff != "" {
		t.Errorf("-with all Services +beside some:\n%s", diff)
	}
	for _, table := range delta.After.Tables {
		for _, e := range table.Set(nft.ServicesMap).Elements {
			if port, _ := nft.ParseComment(e.Comment); port.Service != stays {
				t.Errorf("element of a Service that is left out: %s", e.Comment)
			}
		}
	}
	if d := state.Change(nil, router.NodePortAddresses()); len(d.Before.Tables)+len(d.After.Tables) > 0 {
		t.Errorf("no change is one: %v", d)
	}
}

// TestStartHolding: whatever a table in the kernel has, the tables beside it have the same
// sets and rules, and none of its elements.
func TestStartHolding(t *testing.T) {
	for variant := range workload.FullVariants {
		router := model.NewRouter()
		router.Configure(workload.FullConfig(), workload.FullNodes(), workload.FullCIDRs())
		states := make(map[model.ServiceName]model.ServiceState)
		for v := range variant + 1 {
			s := workload.Full(fmt.Sprintf("service-%d", v), byte(v+1), v)
			s.Slices[0].Hosts[0].Address = s.Service.External.ExternalIPs[0] // its own endpoint
			s.Service.Ports[0].Port = 8080
			states[s.Service.Name] = s
		}
		router.SetServices(states)
		held := render.Render(router.Routing())
		alone := workload.Full("alone", 100, 3)
		other := model.NewRouter()
		other.Configure(workload.FullConfig(), workload.FullNodes(), workload.FullCIDRs())
		other.SetServices(map[model.ServiceName]model.ServiceState{alone.Service.Name: alone})
		states[alone.Service.Name] = alone
		router.SetServices(states)
		_, delta := render.StartHolding(other.Routing(), render.PartsIn(held))
		if diff := cmp.Diff(namesIn(render.Render(router.Routing())), namesIn(delta.After)); diff != "" {
			t.Errorf("%d variants: -with all Services +beside some:\n%s", variant+1, diff)
		}
		for _, table := range delta.After.Tables {
			for _, e := range table.Set(nft.ServicesMap).Elements {
				if port, _ := nft.ParseComment(e.Comment); port.Service != alone.Service.Name {
					t.Errorf("element of a Service that is not known: %s", e.Comment)
				}
			}
		}
	}
}

// namesIn returns the sets, and the chains that are no lanes with the text of their rules,
// without those that limit clients: like lanes, they come and go with the Services that use
// them.
func namesIn(r *nft.Ruleset) (out []string) {
	for _, t := range r.Tables {
		limits := make(map[string]bool)
		for _, c := range t.Chains {
			over, ok := c.Rules[0][0].(nft.OverLimit)
			if limits[over.Set] = ok; ok || nft.IsLane(c.Rules) {
				continue
			}
			for _, rule := range c.Rules {
				out = append(out, t.Family.String()+" "+c.Name+": "+rule.Text(t.Family))
			}
		}
		for _, s := range t.Sets {
			if !limits[s.Name] {
				out = append(out, t.Family.String()+" set "+s.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestTableStaysBeside: the tables of Services that are left out stay when the last of the
// others goes, and those of other families do not come.
func TestTableStaysBeside(t *testing.T) {
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	all := workload.Services(2, 1)
	router.SetServices(all)
	out := render.Added(router.Routing())[:1]
	some := router.Routing()
	some.Revert(out)
	state, delta := render.StartBeside(some, out)
	if n := len(delta.After.Tables); n != 1 {
		t.Fatalf("%d tables", n)
	}
	gone := render.Added(some)[0]
	delta = state.Change([]model.RouteChange{{Frontend: gone.Frontend, Old: gone.New}}, nil)
	if len(delta.Before.Tables) != 1 || len(delta.After.Tables) != 1 {
		t.Errorf("%d tables, then %d", len(delta.Before.Tables), len(delta.After.Tables))
	}
	if _, delta := render.StartBeside(router.Base(), out); len(delta.After.Tables) != 1 {
		t.Errorf("%d tables beside a Service", len(delta.After.Tables))
	}
	if r := render.Only(router.Base(), out); len(r.Tables) != 1 || len(r.Tables[0].Set(nft.ServicesMap).Elements) != 1 {
		t.Errorf("%d tables of a Service alone", len(r.Tables))
	}
}
