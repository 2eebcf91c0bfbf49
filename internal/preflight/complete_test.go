package preflight

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// ofTables are the expressions that every kernel with nf_tables has.
var ofTables = []string{"bitwise", "cmp", "dynset", "immediate", "lookup", "meta", "payload"}

// ofRefusals are the expressions that only chains of reasons have.
var ofRefusals = []string{"limit", "log"}

// TestEveryStatement: the kernel is asked for statements of every type, and each
// of their expressions has a remedy, or needs none.
func TestEveryStatement(t *testing.T) {
	for _, f := range model.Families {
		asked := make(map[string]bool)
		for _, c := range probeAll([]model.Family{f}, Use{true, true}).Tables[0].Chains {
			for _, s := range slices.Concat(c.Rules...) {
				asked[kindOf(f, s)] = true
			}
		}
		samples := workload.Statements(f)
		for _, rule := range samples {
			for _, s := range rule {
				if name := kindOf(f, s); !asked[name] {
					t.Errorf("%s: the kernel is not asked for %s", f, name)
				}
			}
		}
		names := expressions(t, &nft.Ruleset{Tables: []*nft.Table{workload.StatementTable(f, samples)}})
		if len(names) < len(byExpression) {
			t.Errorf("these are too few to be all: %s", names)
		}
		for _, name := range names {
			if _, ok := byExpression[name]; !ok && !slices.Contains(ofTables, name) && !slices.Contains(ofRefusals, name) {
				t.Errorf("%s has no remedy", name)
			}
		}
	}
}

// kindOf names a statement without its parameters.
func kindOf(f model.Family, s nft.Statement) string {
	switch s := s.(type) {
	case nft.Plain:
		if s == nft.ResetsTCP { // has the expressions of the other one
			s = nft.EndsTCP
		}
		return s.Text(f)
	case nft.Update:
		return fmt.Sprintf("%s, data %t, counts %t, rate %t, connections %t", s.Op, s.Data != nil, s.Counts, s.Limit.Rate.Amount > 0, s.Limit.Connections > 0)
	}
	return reflect.TypeOf(s).Name()
}

// expressions returns the names of all expressions in the rules.
func expressions(t *testing.T, rules *nft.Ruleset) (names []string) {
	t.Helper()
	transaction, err := codec.Encode(plan.Diff(&nft.Ruleset{}, rules))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range transaction.Messages {
		if m.Type != unix.NFT_MSG_NEWRULE {
			continue
		}
		a := netlinkio.ReadMessage(m.Data, &err)
		for a.Next() {
			if a.Type != unix.NFTA_RULE_EXPRESSIONS {
				continue
			}
			list := a.Nested()
			for list.Next() {
				x := list.Nested()
				x.Next() // its name comes first
				names = append(names, string(x.Text()))
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestProbesJoin: sets of one name are the same in all configurations, and so are the chains of
// reasons, which are found by their names.
func TestProbesJoin(t *testing.T) {
	for _, f := range model.Families {
		sets, chains := make(map[string]nft.Set), make(map[string]nft.Chain)
		for _, rules := range probesFor(f, Use{true, true}) {
			for _, s := range rules.Tables[0].Sets {
				plain := *s
				plain.Elements = nil
				if first, ok := sets[s.Name]; ok && !reflect.DeepEqual(first, plain) {
					t.Errorf("%s: set %s differs", f, s.Name)
				}
				sets[s.Name] = plain
			}
			for _, c := range rules.Tables[0].Chains {
				_, _, refuses := nft.ReasonOf(c.Name)
				if first, ok := chains[c.Name]; ok && refuses && !reflect.DeepEqual(first, *c) {
					t.Errorf("%s: chain %s differs", f, c.Name)
				}
				chains[c.Name] = *c
			}
		}
	}
}
