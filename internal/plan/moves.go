package plan

import (
	"cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// moves are what ends and begins in a plan that changes ranges of ports. Only the first
// ports of ranges are set, which are their numbers.
//
// The kernel commits intervals a moment after all other elements of a transaction. In that
// moment, a port that gets a range in place of a frontend of its own would have neither,
// and a range that ends would still lead to its number, of which nothing is known any more,
// such as its source ranges. So ranges change in a transaction of their own, after new
// frontends are there and before old ones leave.
type moves struct {
	exact   map[model.Frontend]bool // frontends with a port of their own that end
	numbers map[model.Frontend]bool // ranges that end
	changed map[model.Frontend]bool // ranges that end, begin, or get or lose ports
}

// moves returns those of each family whose ranges the plan changes.
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
			out[c.Family] = &moves{make(map[model.Frontend]bool), make(map[model.Frontend]bool), make(map[model.Frontend]bool)}
		}
		out[c.Family].changed[frontendOf(c)] = true
	}
	if out == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		m := out[c.Family]
		if m == nil || c.Kind() != "element" || c.Verb != Delete {
			continue
		}
		switch c.Set.Name {
		case nft.ServicesMap:
			m.exact[frontendOf(c)] = true
		case nft.RangeServicesMap:
			m.numbers[frontendOf(c)] = true
		}
	}
	return out
}

func frontendOf(c *Change) model.Frontend { return cmp.Or(c.New, c.Old).Key.Frontend() }

// phaseOf returns the phase of a change that directs packets.
func (m *moves) phaseOf(c *Change) phase {
	if c.Kind() != "element" {
		return turn
	}
	f, deletes := frontendOf(c), c.Verb == Delete
	switch ofRange := nft.OfRanges(c.Set.Name); {
	case c.Set.Name == nft.RangesMap:
		return swap
	case c.Set.Name == nft.RangeAddressesSet && deletes:
		return leave
	case ofRange && deletes && m.numbers[f] && !c.Set.Interval:
		return tidy
	case ofRange && m.changed[f]:
		return swap
	case !ofRange && deletes && m.exact[f]:
		return leave
	}
	return turn
}
