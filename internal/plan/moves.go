package plan

import (
	"cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// moves are the ranges of ports that end and begin in a plan.
//
// The kernel commits intervals a moment after all other elements of a transaction. In that
// moment, a port that gets a range in place of a frontend of its own would have neither,
// and a range that ends would still lead to its number, whose source ranges, for example,
// are gone. So ranges change in a transaction of their own, after new
// frontends are there and before old ones leave.
type moves struct {
	ended   map[model.FrontendID]bool // frontends that end
	changed map[model.FrontendID]bool // ranges that end, begin, or get or lose ports
}

// moves returns the moves of each family whose ranges the plan changes.
func (p *Plan) moves() map[model.Family]*moves {
	var out map[model.Family]*moves
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind() != "element" || c.Set.Name != nft.RangesMap {
			continue
		}
		if out == nil {
			out = make(map[model.Family]*moves)
		}
		if out[c.Family] == nil {
			out[c.Family] = &moves{make(map[model.FrontendID]bool), make(map[model.FrontendID]bool)}
		}
		out[c.Family].changed[idOf(c)] = true
	}
	if out == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		m := out[c.Family]
		if m != nil && c.Kind() == "element" && c.Verb == Delete && nft.RowOf(c.Set.Name).Contents == nft.Services {
			m.ended[idOf(c)] = true
		}
	}
	return out
}

// key returns the key of a changed element.
func (c *Change) key() nft.Key { return cmp.Or(c.New, c.Old).Key }

// idOf returns the frontend that a changed element names.
func idOf(c *Change) model.FrontendID { return c.Set.FrontendID(c.key()) }

// phaseOf returns the phase of a change that directs packets.
func (m *moves) phaseOf(c *Change) phase {
	if c.Kind() != "element" {
		return turn
	}
	f, deletes := idOf(c), c.Verb == Delete
	switch ofRange := nft.OfRanges(c.Set.Name); {
	case c.Set.Name == nft.RangesMap:
		return swap
	case c.Set.Name == nft.RangeAddressesSet && deletes:
		return leave
	case ofRange && deletes && m.ended[f] && !c.Set.Interval:
		return tidy
	case ofRange && m.changed[f]:
		return swap
	case !ofRange && deletes && m.ended[f]:
		return leave
	}
	return turn
}
