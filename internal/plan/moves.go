package plan

import (
	"cmp"
	"net/netip"

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
//
// Of an address that gets its first range, or loses its last one, the ranges lead nowhere before it
// is in [nft.RangeAddressesSet], and afterwards. They come early and leave late, and the address
// changes together with all else that decides about it: whether it refuses other ports, for example.
// It leaves later if a port gets a frontend of its own, which may have had a range.
type moves struct {
	ended   map[model.FrontendID]bool // frontends that end
	changed map[model.FrontendID]bool // ranges that end, begin, or get or lose ports
	ranges  map[netip.Addr]bool       // addresses at which a range begins
	ports   map[netip.Addr]bool       // addresses at which a frontend of one port begins
	first   map[netip.Addr]bool       // addresses that get their first range
	last    map[netip.Addr]bool       // addresses that lose their last one
}

func newMoves() *moves {
	return &moves{
		make(map[model.FrontendID]bool), make(map[model.FrontendID]bool),
		make(map[netip.Addr]bool), make(map[netip.Addr]bool), make(map[netip.Addr]bool), make(map[netip.Addr]bool),
	}
}

// rangeMoves returns the moves of each family whose ranges the plan changes.
func (p *Plan) rangeMoves() map[model.Family]*moves {
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
			out[c.Family] = newMoves()
		}
		out[c.Family].changed[idOf(c)] = true
		if c.Verb != Delete {
			out[c.Family].ranges[c.elementKey().Address] = true
		}
	}
	if out == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		m := out[c.Family]
		switch {
		case m == nil || c.Kind() != "element":
		case c.Set.Name == nft.RangeAddressesSet && c.Verb == Add:
			m.first[c.elementKey().Address] = true
		case c.Set.Name == nft.RangeAddressesSet:
			m.last[c.elementKey().Address] = true
		case c.Verb == Delete && nft.RowOf(c.Set.Name).Contents == nft.Services:
			m.ended[idOf(c)] = true
		case c.Verb == Add && c.Set.Name == nft.ServicesMap:
			m.ports[c.elementKey().Address] = true
		}
	}
	return out
}

func (c *Change) elementKey() nft.Key { return cmp.Or(c.New, c.Old).Key }

func idOf(c *Change) model.FrontendID { return c.Set.FrontendID(c.elementKey()) }

// phaseOf returns the phase of a change that directs packets.
func (m *moves) phaseOf(c *Change) phase {
	switch {
	case c.Chain != nil && c.Verb == Replace && hasRules(c.OldRules, c.Chain.Rules, c.Family):
		return tidy // which frontends may need that leave after the turn: a list of denied clients, for example
	case c.exchangesLists():
		return tidy // see [Plan.keepLists]
	case c.Kind() != "element":
		return turn
	}
	f, deletes := idOf(c), c.Verb == Delete
	if nft.IDOf(c.Set.Name).Name == nft.HairpinSet && deletes {
		return tidy // the endpoint of a frontend that may leave after the turn
	}
	switch ofRange := nft.OfRanges(c.Set.Name); {
	case c.Set.Name == nft.RangeAddressesSet && deletes && (m.ports[f.Address] || m.ports[unspecifiedLike(f.Address)]):
		return leave
	case c.Set.Name == nft.RangeAddressesSet:
		return turn
	case ofRange && m.changed[f] && m.first[f.Address]:
		return prepare
	case ofRange && m.changed[f] && m.last[f.Address]:
		return tidy
	case ofRange && deletes && m.ended[f] && !c.Set.Interval:
		return tidy
	case ofRange && m.changed[f]:
		return swap
	case !ofRange && deletes && m.ended[f] && (m.ranges[f.Address] || f.Address.IsUnspecified()):
		return leave
	}
	return turn
}

// unspecifiedLike returns the address of a NodePort that several addresses of the node serve, in the
// family of an address.
func unspecifiedLike(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
