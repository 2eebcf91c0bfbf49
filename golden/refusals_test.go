package golden

import (
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// TestEveryRefusalHasAReason: 16.2. While refusals are observed, every verdict of the rules of
// every case that refuses a connection is in the chain of a reason, or leads there. All else is
// as without (16.4).
func TestEveryRefusalHasAReason(t *testing.T) {
	reasons := make(map[model.RefusalReason]bool)
	for _, path := range casePaths(t) {
		for _, p := range read(t, path).phases {
			if p.err != nil {
				continue
			}
			config := p.flags.Config
			config.Observe = model.Observe{Level: model.ObserveRefusals, Group: 1}
			rules := render.Render(model.Resolve(p.input.Snapshot, config))
			for _, table := range rules.Tables {
				checkRefusals(t, path, table, reasons)
				unobserve(t, table)
			}
			config.Observe = model.Observe{}
			if got, want := text(t, rules), textOf(t, model.Resolve(p.input.Snapshot, config)); got != want {
				t.Errorf("%s: without what observes them, rules are\n%s\nwant\n%s", path, got, want)
			}
		}
	}
	for r := range model.Refusals {
		if !reasons[model.RefusalReason(r)] {
			t.Errorf("no case refuses connections for the reason %s", model.RefusalReason(r))
		}
	}
}

// checkRefusals checks one table, and notes the reasons that rules lead to.
func checkRefusals(t *testing.T, path string, table *nft.Table, reasons map[model.RefusalReason]bool) {
	t.Helper()
	led := make(map[string]bool)
	follow := func(where string, v nft.Verdict) {
		_, refuses := v.Refuses()
		if !refuses {
			return
		}
		reason, _, ok := nft.ReasonOf(v.Chain)
		if !ok {
			t.Errorf("%s: %s refuses without a reason: %s", path, where, v)
			return
		}
		reasons[reason], led[v.Chain] = true, true
		if table.Chain(v.Chain) == nil || table.Set(v.Chain) == nil {
			t.Errorf("%s: %s leads to %q, whose chain or set does not exist", path, where, v)
		}
	}
	for _, c := range table.Chains {
		// What is refused behind a redirect has been forwarded; the problem RelayPort names it.
		if _, _, ok := nft.ReasonOf(c.Name); ok || c.Name == nft.RefuseChain || c.Name == nft.RelayInputChain {
			continue
		}
		for _, s := range slices.Concat(c.Rules...) {
			switch s := s.(type) {
			case nft.Verdict:
				follow("chain "+c.Name, s)
			case nft.Plain:
				if s == nft.Refuse || s == nft.Reset {
					t.Errorf("%s: chain %s answers without a reason", path, c.Name)
				}
			}
		}
	}
	for _, s := range table.Sets {
		for _, e := range s.Elements {
			follow("map "+s.Name, e.Value.Verdict)
		}
	}
	for _, c := range table.Chains {
		r, s, ok := nft.ReasonOf(c.Name)
		ofEndpoints := s == nft.OfRange && (r == model.NoEndpoints || r == model.NoLocalEndpoints) // elements of ranges come and go
		if ok && !led[c.Name] && !ofEndpoints {
			t.Errorf("%s: nothing leads to chain %s", path, c.Name)
		}
	}
}

// unobserve turns a table into the one without observed refusals: verdicts that lead to the chain
// of a reason become the last verdict of that chain.
func unobserve(t *testing.T, table *nft.Table) {
	t.Helper()
	plain := func(v nft.Verdict) nft.Verdict {
		if _, _, ok := nft.ReasonOf(v.Chain); !ok {
			return v
		}
		c := table.Chain(v.Chain)
		return c.Rules[len(c.Rules)-1][0].(nft.Verdict)
	}
	for _, s := range table.Sets {
		for i := range s.Elements {
			s.Elements[i].Value.Verdict = plain(s.Elements[i].Value.Verdict)
		}
	}
	for _, c := range table.Chains {
		if _, _, ok := nft.ReasonOf(c.Name); ok {
			continue
		}
		for _, r := range c.Rules {
			if v, ok := r[len(r)-1].(nft.Verdict); ok {
				r[len(r)-1] = plain(v)
			}
		}
	}
	table.Sets = slices.DeleteFunc(table.Sets, func(s *nft.Set) bool {
		_, _, ok := nft.ReasonOf(s.Name)
		return ok || strings.HasPrefix(s.Name, nft.ObservedSet)
	})
	table.Chains = slices.DeleteFunc(table.Chains, func(c *nft.Chain) bool {
		_, _, ok := nft.ReasonOf(c.Name)
		return ok || watches(c)
	})
}

// watches reports whether a chain only logs connections, and removes the jumps to such a chain.
func watches(c *nft.Chain) bool {
	c.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r nft.Rule) bool { return r[0] == nft.Statement(nft.Verdict{Action: nft.Jump, Chain: "watch"}) })
	return c.Filter && c.Name != nft.RelayInputChain || slices.Contains([]string{"watch", "watch-input", "ends"}, c.Name)
}
