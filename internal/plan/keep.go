package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Revert takes what the plan has changed of elements back from tables in the kernel, except where another
// program has changed it again.
func (p *Plan) Revert(held *nft.Ruleset) {
	changed := make(map[*nft.Set]map[nft.Key]nft.Element)
	for _, c := range slices.Backward(p.Changes) {
		t := held.Table(c.Family)
		if c.Kind() != "element" || c.Set.Dynamic || t == nil || t.Set(c.Set.Name) == nil {
			continue
		}
		s := t.Set(c.Set.Name)
		if changed[s] == nil {
			changed[s] = make(map[nft.Key]nft.Element, len(s.Elements))
			for _, e := range s.Elements {
				changed[s][e.Key] = e
			}
		}
		switch now, is := changed[s][c.elementKey()]; {
		case is != (c.New != nil) || is && now != *c.New:
		case c.Old != nil:
			changed[s][c.elementKey()] = *c.Old
		default:
			delete(changed[s], c.elementKey())
		}
	}
	for s, elements := range changed {
		s.Elements = slices.Collect(maps.Values(elements))
		s.Sort()
	}
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
