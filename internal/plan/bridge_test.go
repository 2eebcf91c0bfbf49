package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestBridge: while a table or map is replaced, no packet is refused for lack of an
// element, and each one reaches rules that exist before and after. In the end
// nothing of the bridge is left.
func TestBridge(t *testing.T) {
	for name, c := range map[string]struct {
		outdated []model.Family
		counters bool
	}{
		"a table that gets an owner": {model.Families[:], false},
		"a map that starts to count": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			current := workload.Clone(workload.Sample())
			desired := workload.Clone(workload.Sample())
			for i, table := range desired.Tables {
				current.Tables[i].Set(nft.ServicesMap).Counters = false
				table.Set(nft.ServicesMap).Counters = c.counters
			}
			states := carryOut(t, current, plan.DiffOutdated(current, desired, c.outdated))
			if len(states) != 3 {
				t.Fatalf("%d transactions, want 3", len(states))
			}
			for _, want := range desired.Tables {
				before, turned, after := states[0].Table(want.Family), states[1].Table(want.Family), states[2].Table(want.Family)
				if rules := before.Chain("dispatch").Rules; len(rules) != 1 {
					t.Errorf("before, dispatch has %d rules, want that for the services", len(rules))
				}
				for _, base := range want.Chains {
					if base.Hook == nft.NoHook {
						continue
					}
					late := turned.Chain(base.Name + "-late")
					if late == nil || late.Hook != base.Hook || late.Priority <= base.Priority ||
						!plan.EqualRules(late.Rules, base.Rules, want.Family) {
						t.Errorf("%s has no copy behind it: %+v", base.Name, late)
					}
				}
				if slices.ContainsFunc(after.Chains, func(c *nft.Chain) bool { return strings.HasSuffix(c.Name, "-late") }) ||
					!plan.EqualRules(after.Chain("dispatch").Rules, want.Chain("dispatch").Rules, want.Family) {
					t.Errorf("at the end:\n%s", after.Text())
				}
			}
		})
	}
}

// TestTheEndRefusesNothing: before tables end, they stop to refuse addresses without a
// frontend, whether refused connections are counted or not: a packet may pass chains that
// are empty already, and then others.
func TestTheEndRefusesNothing(t *testing.T) {
	observed := workload.Clone(workload.Sample())
	for _, table := range observed.Tables {
		rules := table.Chain("unserved").Rules
		for i, r := range rules {
			rules[i] = append(r[:len(r)-1:len(r)-1], nft.Verdict{Action: nft.Goto, Chain: nft.RefusalOf(model.UnknownPort, nft.OfPort)})
		}
	}
	for _, current := range []*nft.Ruleset{workload.Clone(workload.Sample()), observed} {
		testEnd(t, current)
	}
}

func testEnd(t *testing.T, current *nft.Ruleset) {
	t.Helper()
	refused := len(current.Tables[0].Chain("unserved").Rules)
	p := plan.Diff(current, &nft.Ruleset{})
	states := carryOut(t, current, p)
	if len(states) != 2 || len(states[1].Tables) > 0 {
		t.Fatalf("%d transactions, want 2; %d tables are left", len(states), len(states[len(states)-1].Tables))
	}
	for _, table := range states[0].Tables {
		if left := len(table.Chain("unserved").Rules); refused == 0 || left > 0 {
			t.Errorf("%s: %d of %d rules refuse until the end", table.Family, left, refused)
		}
		if table.Set(nft.ServicesMap) == nil || len(table.Chain("prerouting").Rules) == 0 {
			t.Errorf("%s does not translate until the end", table.Family)
		}
	}
	if got := p.Summary(); !strings.Contains(got, "0 to change, 2 to delete") {
		t.Errorf("the plan is %q", got)
	}
}

// TestRefusalsThatStay: the bridge keeps foreign rules, and rules that are not about
// our addresses.
func TestRefusalsThatStay(t *testing.T) {
	table := workload.Clone(workload.Sample()).Tables[0]
	set := nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.ClusterIPsSet}
	drop := nft.Verdict{Action: nft.Drop}
	for name, rules := range map[string][]nft.Rule{
		"a set of the rule":        {{nft.InSet{Key: set.Key, Set: "__set0"}, drop}},
		"a foreign statement":      {{nft.Foreign{Description: "log"}}, {set, drop}},
		"a reason that is none":    {{set, nft.Verdict{Action: nft.Goto, Chain: "refused-for-fun"}}},
		"addresses not of ours":    {{nft.InSet{Key: set.Key, Set: set.Set, Not: true}, drop}},
		"clients":                  {{nft.InSet{Key: nft.Concat{nft.SourceAddress}, Set: set.Set}, drop}},
		"a chain that serves":      {{set, nft.Verdict{Action: nft.Goto, Chain: "dispatch"}}},
		"a chain that is gone":     {{set, nft.Verdict{Action: nft.Goto, Chain: "gone"}}},
		"a jump":                   {{set, nft.Verdict{Action: nft.Jump, Chain: "refuse"}}},
		"a rule that does no more": {{set}},
		"nothing":                  {{}},
	} {
		if got := plan.WithoutRefusals(table, &nft.Chain{Rules: rules}); len(got.Rules) != len(rules) {
			t.Errorf("%s: %d of %d rules are left", name, len(got.Rules), len(rules))
		}
	}
}
