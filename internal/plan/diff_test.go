package plan_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// carryOut changes a ruleset as the kernel does, and returns it after each
// transaction.
func carryOut(t *testing.T, rules *nft.Ruleset, p *plan.Plan) (states []*nft.Ruleset) {
	t.Helper()
	for _, phase := range p.Phases() {
		for i := range phase.Changes {
			if err := workload.CarryOut(rules, &phase.Changes[i]); err != nil {
				t.Fatal(err)
			}
		}
		states = append(states, workload.Clone(rules))
	}
	return states
}

// TestDiffReplacesUnlikeTables covers what cannot be changed in place.
func TestDiffReplacesUnlikeTables(t *testing.T) {
	desired := workload.NewWorld(4).Step()
	for len(desired.Tables) == 0 {
		desired = workload.NewWorld(5).Step()
	}
	for name, spoil := range map[string]func(*nft.Table){
		"set of another type":       func(t *nft.Table) { t.Sets[0].Key = t.Sets[0].Key[:1] },
		"set that is not ours":      func(t *nft.Table) { t.Sets[0].Key = nil },
		"chain at another hook":     func(t *nft.Table) { t.Chains[len(t.Chains)-1].Hook = nft.Output },
		"chain of another rank":     func(t *nft.Table) { t.Chains[len(t.Chains)-1].Priority++ },
		"chain of a foreign kind":   func(t *nft.Table) { t.Chains[len(t.Chains)-1].Hook = nft.Hook(255) },
		"regular chain with a hook": func(t *nft.Table) { t.Chain("refuse").Hook = nft.Prerouting },
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := workload.Clone(desired)
			spoil(spoilt.Tables[0])
			p := plan.Diff(spoilt, desired)
			if !p.Has(plan.Change{Verb: plan.Delete, Family: spoilt.Tables[0].Family}) {
				t.Error("the table stays")
			}
			carryOut(t, spoilt, p)
			if p := plan.Diff(spoilt, desired); !p.Empty() {
				t.Errorf("left to do: %s", p.Summary())
			}
		})
	}
}

// TestRedeclareUnusedMap: another program gave the endpoints map counters, and
// deleted the rules that refer to it. Elements must not be added before the map is
// redeclared, which empties it (found by FuzzDiff).
func TestRedeclareUnusedMap(t *testing.T) {
	desired := workload.Sample()
	current := workload.Clone(desired)
	for _, table := range current.Tables {
		for _, c := range table.Chains {
			c.Rules = nil
		}
		endpoints := table.Set(nft.EndpointsMap)
		endpoints.Counters, endpoints.Elements = true, nil
	}
	carryOut(t, current, plan.Diff(current, desired))
	if p := plan.Diff(current, desired); !p.Empty() {
		t.Errorf("left to do: %s", p.Summary())
	}
}
