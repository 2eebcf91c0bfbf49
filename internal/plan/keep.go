package plan

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Keeping returns the plan without what changes or deletes elements of some Services,
// and without the deletion of what these may need: lanes, sets, and elements that several
// frontends need. The Services are known by the comments of their frontends; echoes are
// the sets of addresses for echo requests, which have such comments, too. A table that is
// replaced does not get the elements again. What was carried out of an earlier plan that
// failed is reverted for these Services.
func (p *Plan) Keeping(services []model.ServiceName, echoes []*nft.Set, failed *Plan) *Plan {
	kept := make(map[model.ServiceName]bool, len(services))
	for _, s := range services {
		kept[s] = true
	}
	out := p.keeping(func(c *Change) bool { return NamesOneOf(kept, p.comment(c, echoes)) })
	if len(p.Rebuilt) == 0 {
		out.Changes = append(out.Changes, failed.reversed(out, func(c *Change) bool {
			return NamesOneOf(kept, p.comment(c, echoes)) || NamesOneOf(kept, failed.comment(c, echoes))
		})...)
	}
	return out
}

// keeping returns the plan without changes of elements that are kept, and without the
// deletion of what these may need.
func (p *Plan) keeping(kept func(*Change) bool) *Plan {
	return p.without(func(c Change) bool {
		switch {
		case c.passing != 0:
			return false
		case c.Kind() == "element" && mayBeNeeded(c.Set.Name):
			return c.Verb == Delete
		case c.Kind() == "element":
			return kept(&c)
		case c.Verb != Delete:
			return false
		case c.Kind() == "table":
			return !slices.Contains(p.Rebuilt, c.Family)
		}
		return c.Set != nil || c.Chain.Hook == nft.NoHook
	})
}

// place is where an element is.
type place struct {
	family model.Family
	set    string
	key    nft.Key
}

func placeOf(c *Change) place { return place{c.Family, c.Set.Name, c.key()} }

// reversed returns the opposite of the selected changes of elements, except of those about
// which another plan decides.
func (p *Plan) reversed(other *Plan, selects func(*Change) bool) (out []Change) {
	decided := make(map[place]bool)
	for i := range other.Changes {
		if c := &other.Changes[i]; c.Kind() == "element" {
			decided[placeOf(c)] = true
		}
	}
	at := make(map[place]int)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind() != "element" || mayBeNeeded(c.Set.Name) || decided[placeOf(c)] || !selects(c) {
			continue
		}
		if n, again := at[placeOf(c)]; again {
			out[n].Old = c.New
			continue
		}
		at[placeOf(c)] = len(out)
		out = append(out, Change{Family: c.Family, Set: c.Set, Old: c.New, New: c.Old})
	}
	for i := range out {
		switch c := &out[i]; {
		case c.Old == nil:
			c.Verb = Add
		case c.New == nil:
			c.Verb = Delete
		default:
			c.Verb = Replace
		}
	}
	return slices.DeleteFunc(out, func(c Change) bool {
		return c.Old == nil && c.New == nil || c.Old != nil && c.New != nil && *c.Old == *c.New
	})
}

// KeepingShared returns the plan without the deletion of elements that do not name their
// frontend.
func (p *Plan) KeepingShared() *Plan {
	return p.without(func(c Change) bool {
		return c.Kind() == "element" && c.Verb == Delete && c.passing == 0 && nft.RowOf(c.Set.Name).Contents == nft.Shared
	})
}

// mayBeNeeded reports whether a set has elements that do not name their frontend.
func mayBeNeeded(set string) bool {
	c := nft.RowOf(set).Contents
	return c == nft.Lanes || c == nft.Shared
}

// comment returns the comment of the frontend of an element, or of its address; empty:
// there is none.
func (p *Plan) comment(c *Change, echoes []*nft.Set) string {
	f := c.key().Frontend()
	if f.Protocol != 0 {
		return p.ServicePort(c)
	}
	for _, s := range echoes {
		if e, ok := s.Find(f); ok {
			return e.Comment
		}
	}
	return ""
}

// NamesOneOf reports whether a comment names one of some Services. Long names are cut.
func NamesOneOf(services map[model.ServiceName]bool, comment string) bool {
	if comment == "" {
		return false
	}
	port, _ := nft.ParseComment(comment)
	if services[port.Service] {
		return true
	}
	start, cut := strings.CutSuffix(port.Service.Name, "...")
	if !cut {
		return false
	}
	for s := range services {
		if s.Namespace == port.Service.Namespace && strings.HasPrefix(s.Name, start) {
			return true
		}
	}
	return false
}
