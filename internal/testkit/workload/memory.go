package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"golang.org/x/sys/unix"
)

// CarryOut changes a ruleset as the kernel does, and is as strict.
func CarryOut(r *nft.Ruleset, c *plan.Change) error {
	t := r.Table(c.Family)
	refuse := func(why string) error { return fmt.Errorf("%s: %s", c.Text(), why) }
	switch {
	case c.Kind() == "table" && c.Verb == plan.Add:
		if t != nil {
			return refuse("exists")
		}
		r.Tables = append(r.Tables, &nft.Table{Family: c.Family})
		slices.SortFunc(r.Tables, func(a, b *nft.Table) int { return int(a.Family) - int(b.Family) })
	case t == nil:
		return refuse("no table")
	case c.Kind() == "table":
		r.Tables = slices.DeleteFunc(r.Tables, func(o *nft.Table) bool { return o == t })
	case c.Kind() == "element":
		return carryOutElement(t, c)
	case c.Chain != nil:
		return carryOutChain(t, c)
	case c.Verb == plan.Add && t.Set(c.Set.Name) == nil:
		s := *c.Set
		s.Elements = nil
		t.Sets = append(t.Sets, &s)
	case c.Verb == plan.Replace && t.Set(c.Set.Name) != nil:
		for _, u := range c.Users {
			t.Chain(u.Name).Rules = nil
		}
		declared := *c.Set
		declared.Elements = nil
		*t.Set(c.Set.Name) = declared
	case c.Verb == plan.Delete && t.Set(c.Set.Name) != nil:
		t.Sets = slices.DeleteFunc(t.Sets, func(s *nft.Set) bool { return s.Name == c.Set.Name })
	default:
		return refuse("set exists, or does not")
	}
	return nil
}

func carryOutElement(t *nft.Table, c *plan.Change) error {
	s := t.Set(c.Set.Name)
	if s == nil {
		return fmt.Errorf("%s: no such set", c.Text())
	}
	find := func(k nft.Key) (int, bool) {
		return slices.BinarySearchFunc(s.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	}
	if c.Old != nil {
		i, ok := find(c.Old.Key)
		if !ok || s.Elements[i] != *c.Old {
			return fmt.Errorf("%s: no such element", c.Text())
		}
		s.Elements = slices.Delete(s.Elements, i, i+1)
	}
	if c.New != nil {
		i, exists := find(c.New.Key)
		if exists {
			return fmt.Errorf("%s: key exists", c.Text())
		}
		if s.Interval && slices.ContainsFunc(s.Elements, func(e nft.Element) bool { return overlap(s, e.Key, c.New.Key) }) {
			return fmt.Errorf("%s: overlaps another element", c.Text())
		}
		if v := c.New.Value.Verdict; v.Action == nft.Goto && t.Chain(v.Chain) == nil {
			return fmt.Errorf("%s: no such chain", c.Text())
		}
		s.Elements = slices.Insert(s.Elements, i, *c.New)
	}
	return nil
}

// overlap reports whether two elements of an interval set have a key in common.
func overlap(s *nft.Set, a, b nft.Key) bool {
	return !slices.ContainsFunc(s.Key, func(d nft.Datatype) bool {
		switch d {
		case nft.InetProto:
			return a.Protocol != b.Protocol
		case nft.Port:
			return a.Port != b.Port
		case nft.PortRange:
			return uint32(a.Port) > b.Slot || uint32(b.Port) > a.Slot
		}
		return !s.Prefix(a, d).Overlaps(s.Prefix(b, d))
	})
}

func carryOutChain(t *nft.Table, c *plan.Change) error {
	chain := t.Chain(c.Chain.Name)
	if (chain == nil) != (c.Verb == plan.Add) {
		return fmt.Errorf("%s: exists, or does not", c.Text())
	}
	switch c.Verb {
	case plan.Add:
		added := *c.Chain
		added.Rules = nil
		t.Chains = append(t.Chains, &added)
	case plan.Replace:
		chain.Rules = c.Chain.Rules
	case plan.Delete:
		if usesChain(t, chain.Name) {
			return fmt.Errorf("%s: %w", c.Text(), unix.EBUSY)
		}
		t.Chains = slices.DeleteFunc(t.Chains, func(o *nft.Chain) bool { return o == chain })
	}
	return nil
}

func usesChain(t *nft.Table, name string) bool {
	return slices.ContainsFunc(t.Sets, func(s *nft.Set) bool {
		return slices.ContainsFunc(s.Elements, func(e nft.Element) bool { return e.Value.Verdict.Chain == name })
	})
}

// CheckReferences fails the test for rulesets that the kernel would reject.
func CheckReferences(t testing.TB, r *nft.Ruleset) {
	t.Helper()
	for _, table := range r.Tables {
		for _, s := range table.Sets {
			for i := range s.Elements {
				if i > 0 && s.Elements[i-1].Key.Compare(s.Elements[i].Key) >= 0 {
					t.Errorf("elements of %s are not sorted, or come twice: %s", s.Name, s.KeyText(s.Elements[i].Key))
				}
				if v := s.Elements[i].Value.Verdict; v.Chain != "" && table.Chain(v.Chain) == nil {
					t.Errorf("%s of %s leads nowhere", s.ElementText(&s.Elements[i]), s.Name)
				}
			}
		}
		for _, c := range table.Chains {
			for _, s := range slices.Concat(c.Rules...) {
				if v, ok := s.(nft.Verdict); ok && v.Chain != "" && table.Chain(v.Chain) == nil {
					t.Errorf("chain %s leads nowhere: %s", c.Name, v)
				}
				if name, _ := nft.SetOf(s); name != "" && table.Set(name) == nil {
					t.Errorf("chain %s looks into no set: %s", c.Name, s.Text(table.Family))
				}
			}
		}
	}
}

func ForgetBindings(r *nft.Ruleset) {
	for _, t := range r.Tables {
		for _, s := range t.Sets {
			if s.Dynamic {
				s.Elements = nil
			}
		}
	}
}

// Printed prints a plan in every form that it has.
func Printed(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var b strings.Builder
	var j bytes.Buffer
	if err := p.Print(&b, false); err != nil {
		t.Error(err)
	}
	if err := p.JSON(&j, nil, nil); err != nil || !json.Valid(j.Bytes()) {
		t.Errorf("JSON of a plan: %v\n%s", err, j.String())
	}
	return b.String()
}

func Clone(r *nft.Ruleset) *nft.Ruleset {
	out := &nft.Ruleset{}
	for _, t := range r.Tables {
		c := &nft.Table{Family: t.Family}
		for _, s := range t.Sets {
			set := *s
			set.Elements = slices.Clone(s.Elements)
			c.Sets = append(c.Sets, &set)
		}
		for _, ch := range t.Chains {
			chain := *ch
			c.Chains = append(c.Chains, &chain)
		}
		out.Tables = append(out.Tables, c)
	}
	return out
}

// Sorted prints the tables with sets and chains sorted: the kernel appends new
// ones.
func Sorted(r *nft.Ruleset) string {
	c := Clone(r)
	var b strings.Builder
	for _, t := range c.Tables {
		slices.SortFunc(t.Chains, func(a, b *nft.Chain) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(t.Sets, func(a, b *nft.Set) int { return strings.Compare(a.Name, b.Name) })
		b.WriteString(t.Text())
	}
	return b.String()
}
