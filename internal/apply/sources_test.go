package apply

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestListsComeBeforeTheirFrontends: 13.14. A list of allowed clients, and the rule that
// looks into it, are there before the frontend is known to have one, and are removed after
// it; also if another frontend has ranges of other lengths.
func TestListsComeBeforeTheirFrontends(t *testing.T) {
	rules := func(lists ...string) *nft.Ruleset {
		all := workload.Services(2, 1)
		for i, list := range lists {
			if list != "" {
				all[workload.ServiceName(i)].Service.Extras = &model.Extras{Sources: model.NewSources(true, []netip.Prefix{netip.MustParsePrefix(list)}, nil)}
			}
		}
		return renderedServices(t, all)
	}
	for name, c := range map[string][2]*nft.Ruleset{
		"first":          {rules(), rules("10.0.0.0/8")},
		"another length": {rules("", "10.0.0.0/8"), rules("192.0.2.0/24", "10.0.0.0/8")},
		"same length":    {rules("", "10.0.0.0/8"), rules("11.0.0.0/8", "10.0.0.0/8")},
	} {
		for _, reverse := range []bool{false, true} {
			before, after, verb := c[0], c[1], plan.Add
			if reverse {
				before, after, verb = after, before, plan.Delete
			}
			lists, frontends := -1, -1
			phases := plan.Diff(before, plan.Settle(before, after)).Phases()
			for i, p := range phases {
				is := func(what func(*plan.Change) bool) bool {
					return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return what(&c) })
				}
				if is(func(c *plan.Change) bool {
					return c.Verb == verb && c.Kind() == "element" && c.Set.Name == nft.AllowFrontendsSet
				}) {
					frontends = i
				}
				list := is(func(c *plan.Change) bool {
					if c.Kind() != "element" {
						return c.Chain != nil && c.Chain.Name == nft.AllowChain
					}
					_, _, ok := nft.ClientSet(c.Set.Name)
					return ok
				})
				if list && lists >= 0 {
					t.Errorf("%s, reverse %t: lists change in two phases", name, reverse)
				}
				if list {
					lists = i
				}
			}
			whole := len(phases) == 1 // the set of frontends comes or goes with the first list
			if frontends < 0 && name != "first" || lists < 0 || !whole && frontends >= 0 && (lists < frontends) == reverse {
				t.Errorf("%s, reverse %t: lists in phase %d, frontends in %d of %d", name, reverse, lists, frontends, len(phases))
			}
		}
	}
}

// TestClientsOfEchoesStay: with answers to ping, a Service that loses its last endpoint, or
// gets one, changes no range of its lists of clients (13.13).
func TestClientsOfEchoesStay(t *testing.T) {
	f, all, name := newFollower(newFake()), workload.Services(1, 1), workload.ServiceName(0)
	all[name].Service.Extras = &model.Extras{Sources: model.NewSources(true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})}
	node := &model.Node{Name: "node-1", Addresses: []netip.Addr{workload.Addr("192.168.7.1")}}
	f.router.Configure(model.Config{NodeName: "node-1", AnswerPing: true}, []*model.Node{node}, nil)
	f.follow(t, f.router.SetServices(all), true)
	for _, s := range []model.ServiceState{{Service: all[name].Service}, all[name]} {
		p, err := f.applier.Apply(f.rules.Change(f.router.SetServices(map[model.ServiceName]model.ServiceState{name: s}), nil))
		if err != nil {
			t.Fatal(err)
		}
		in := func(set string) bool {
			return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Set != nil && c.Set.Name == set })
		}
		if !in(nft.EchoSet) || in(nft.EchoFirewalledSet) || in(nft.EchoSourcesSet) || in(nft.EchoDeniedSet) {
			t.Errorf("%d endpoints: %s", len(s.Slices), p.Summary())
		}
	}
}
