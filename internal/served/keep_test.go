package served_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

func all(string) bool { return true }

// TestKeepLoses: 14.25. A Service is not kept if one of its elements is in a set that this version
// does not have, or has with another layout, or if its class leads nowhere. The others are.
func TestKeepLoses(t *testing.T) {
	first := func(table *nft.Table) nft.Element { return table.Set(nft.ServicesMap).Elements[0] }
	for name, c := range map[string]struct {
		edit func(*nft.Table)
		why  string
	}{
		"a set of a later version": {func(table *nft.Table) {
			s := *table.Set(nft.MasqFrontendsSet)
			s.Name, s.Elements = "sources-of-tomorrow", []nft.Element{{Key: first(table).Key}}
			table.Sets = append(table.Sets, &s)
		}, "sources-of-tomorrow"},
		"another layout": {func(table *nft.Table) {
			s := table.Set(nft.MasqFrontendsSet)
			s.Data, s.Elements = []nft.Datatype{nft.Verdicts}, []nft.Element{{Key: first(table).Key}}
		}, nft.MasqFrontendsSet},
		"a class that leads nowhere": {func(table *nft.Table) {
			table.Set(nft.ServicesMap).Elements[0].Value.Class = 77
		}, "where its rules lead"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := workload.Clone(workload.Sample())
			whole := served.Keep(rules, all)
			table := rules.Tables[0]
			c.edit(table)
			port, _ := nft.ParseComment(first(table).Comment)
			got := served.Keep(rules, all)
			if why := got.Lost[port.Service]; len(got.Lost) != 1 || !strings.Contains(why, c.why) {
				t.Errorf("lost %v, want %v because of %q", got.Lost, port.Service, c.why)
			}
			if len(whole.Lost) != 0 || len(got.Frontends) < 2 || len(got.Frontends) != len(whole.Frontends)-1 {
				t.Errorf("%d frontends, then %d", len(whole.Frontends), len(got.Frontends))
			}
		})
	}
}

// TestKeepNothingHalf: a table without base chains may have parts of Services: a load was cut off.
func TestKeepNothingHalf(t *testing.T) {
	rules := workload.Clone(workload.Sample())
	for _, table := range rules.Tables {
		table.Chains = slices.DeleteFunc(table.Chains, func(c *nft.Chain) bool { return c.Hook != nft.NoHook })
	}
	if got := served.Keep(rules, all); len(got.Frontends)+len(got.Lost) != 0 {
		t.Errorf("kept: %+v", got)
	}
}

// TestKeepAll: what rules with all options have of their frontends is kept, or follows from facts.
func TestKeepAll(t *testing.T) {
	states := make(map[model.ServiceName]model.ServiceState)
	for v := range workload.FullVariants {
		s := workload.Full("service-"+string(rune('a'+v)), byte(v+1), v)
		states[s.Service.Name] = s
	}
	relayed := workload.Full("relayed", 50, 2)
	relayed.Service.Ports, relayed.Service.Extras = relayed.Service.Ports[:1], &model.Extras{Relay: model.PlainRelay}
	states[relayed.Service.Name] = relayed
	config := workload.FullConfig()
	config.Observe = model.Observe{Level: model.ObserveServed, Group: 7}
	router := model.NewRouter()
	router.Configure(config, workload.FullNodes(), workload.FullCIDRs())
	router.SetServices(states)
	rules := render.Render(router.Routing())
	none := model.NewRouter()
	none.Configure(config, workload.FullNodes(), workload.FullCIDRs())
	kept := served.Keep(rules, all)
	if len(kept.Lost) > 0 || len(kept.Relayed) != 1 || !kept.Relayed[relayed.Service.Name] || len(kept.Services) != len(states) {
		t.Errorf("kept %v, relayed %v, not served: %v", kept.Services, kept.Relayed, kept.Lost)
	}
	_, delta := render.StartKeeping(none.Routing(), kept.Kept)
	if got, want := workload.Sorted(delta.After), workload.Sorted(rules); got != want {
		t.Errorf("the kept rules are not the same:\n%s\nwant\n%s", got, want)
	}
}
