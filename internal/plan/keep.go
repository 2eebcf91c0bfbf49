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
// replaced does not get the elements again.
func (p *Plan) Keeping(services []model.ServiceName, echoes []*nft.Set) *Plan {
	kept := make(map[model.ServiceName]bool, len(services))
	for _, s := range services {
		kept[s] = true
	}
	return p.without(func(c Change) bool {
		switch {
		case c.passing != 0:
			return false
		case c.Kind() == "element" && mayBeNeeded(c.Set.Name):
			return c.Verb == Delete
		case c.Kind() == "element":
			return isOf(kept, p.comment(&c, echoes))
		case c.Verb != Delete:
			return false
		case c.Kind() == "table":
			return !slices.Contains(p.Rebuilt, c.Family)
		}
		return c.Set != nil || c.Chain.Hook == nft.NoHook
	})
}

// mayBeNeeded reports whether a set has elements that do not name their frontend.
func mayBeNeeded(set string) bool {
	return set == nft.LanesMap || slices.Contains(nft.SharedSets, set)
}

// comment returns the comment of the frontend of an element, or of its address; empty:
// there is none.
func (p *Plan) comment(c *Change, echoes []*nft.Set) string {
	f := frontendOf(c)
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

// isOf reports whether a comment names one of some Services. Long names are cut.
func isOf(services map[model.ServiceName]bool, comment string) bool {
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
