package apply

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	facts "github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// settings change the structure of the rules: sets, chains and the types of maps.
var settings = map[string]func(*model.Config){
	"nothing":          func(*model.Config) {},
	"service metrics":  func(c *model.Config) { c.Counters = true },
	"endpoint metrics": func(c *model.Config) { c.Counters, c.EndpointCounters = true, true },
	"refusals":         func(c *model.Config) { c.Observe = model.Observe{Level: model.ObserveRefusals, Group: 7} },
	"failures":         func(c *model.Config) { c.Observe = model.Observe{Level: model.ObserveFailures, Group: 7} },
	"connections": func(c *model.Config) {
		c.Observe = model.Observe{Level: model.ObserveServed, Group: 7, Untracked: true}
	},
	"answered pings":    func(c *model.Config) { c.AnswerPing = true },
	"NodePorts":         func(c *model.Config) { c.NodePortAddresses = workload.FullConfig().NodePortAddresses },
	"balancers":         func(c *model.Config) { c.LoadBalancerCIDRs = workload.FullConfig().LoadBalancerCIDRs },
	"small affinity":    func(c *model.Config) { c.AffinityCapacity = 1000 },
	"random, all masq.": func(c *model.Config) { c.Scheduler, c.MasqueradeAll = model.Random, true },
}

// TestKeepAcrossSettings: 12.82, 14.25. A process starts with other settings, and knows half of the
// Services. The kernel answers as before for the others, and as after a fresh start for those; the
// structure is the one for the new settings.
func TestKeepAcrossSettings(t *testing.T) {
	kept := 0
	for seed := range uint64(2) {
		for from, was := range settings {
			for to, is := range settings {
				kept += keepAcross(t, seed, from, was, to, is)
			}
		}
	}
	if kept < 5000 {
		t.Errorf("only %d frontends are kept", kept)
	}
}

func keepAcross(t *testing.T, seed uint64, from string, was func(*model.Config), to string, is func(*model.Config)) (kept int) {
	t.Helper()
	k := newFake()
	w := newWalker(seed, k)
	for i := range workload.WorldSize {
		w.Replace(i)
	}
	w.Config.InterfaceAddresses = workload.FullConfig().InterfaceAddresses
	plain := w.Config
	own := make(map[model.ServiceName]bool)
	for i := range workload.WorldSize / 2 {
		own[workload.ServiceName(2*i)] = true
	}
	was(&w.Config)
	before, old := render.Render(w.Resolve()), w.Resolve()
	if _, err := w.applier.Apply(nft.FromNothing(workload.Clone(before))); err != nil {
		t.Fatal(err)
	}

	w.Config = plain
	is(&w.Config)
	w.applier = New(k, slog.New(slog.DiscardHandler))
	if _, err := w.applier.Apply(w.beside(t, k, own)); err != nil {
		t.Fatalf("seed %d, %s to %s: %v", seed, from, to, err)
	}
	after, _, _ := k.Read()
	workload.CheckReferences(t, after)
	checkClasses(t, after)
	if p := plan.Diff(after, plan.Settle(after, w.beside(t, k, own).After)); !p.Empty() {
		t.Errorf("seed %d, %s to %s: left to do: %s", seed, from, to, workload.Printed(t, p))
	}
	fresh := render.Render(w.Resolve())
	moved := (from == "NodePorts") != (to == "NodePorts") // those of the others stay where they are, with their chains
	if diff := cmp.Diff(structure(fresh), structure(after)); diff != "" && !moved {
		t.Errorf("seed %d, %s to %s: the structure is not that of a fresh start:\n%s", seed, from, to, diff)
	}
	reads := func(r *nft.Ruleset) map[model.Frontend]*facts.Frontend {
		out := make(map[model.Frontend]*facts.Frontend)
		for _, table := range r.Tables {
			for f := range facts.Read(table).All() {
				out[f.Frontend] = f
			}
		}
		return out
	}
	left, now := reads(before), reads(after)
	for _, route := range old.Routes {
		if f := route.Frontend; !own[route.Service.Name] && left[f] != nil {
			kept++
			if now[f] == nil || !workload.SameFrontend(*now[f], *left[f]) {
				t.Errorf("seed %d, %s to %s: %s was %+v, is %+v", seed, from, to, f, left[f], now[f])
			}
		}
	}
	wanted := reads(fresh)
	for f, g := range wanted {
		if own[g.Port.Service] && now[f] != nil && own[now[f].Port.Service] && !workload.SameFrontend(*now[f], *g) {
			t.Errorf("seed %d, %s to %s: %s is %+v, want %+v", seed, from, to, f, now[f], g)
		}
	}
	return kept
}

// structure returns the declarations of sets, and the rules of chains that are not of single Services.
func structure(r *nft.Ruleset) (out []string) {
	for _, table := range r.Tables {
		for _, c := range table.Chains {
			if nft.IsLane(c.Rules) || strings.HasPrefix(c.Name, "client-") {
				continue
			}
			for _, rule := range c.Rules {
				out = append(out, c.Name+": "+rule.Text(table.Family))
			}
		}
		for _, s := range table.Sets {
			if !strings.HasPrefix(s.Name, "clients-of-") {
				out = append(out, fmt.Sprint(s.Name, s.Key, s.Data, s.Interval, s.Dynamic, s.Timeless, s.Counters, s.Limits, s.Size))
			}
		}
	}
	slices.Sort(out)
	return out
}
