package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Phases splits a plan into successive transactions. One of them changes what
// packets see. New lanes and slots, to which nothing leads yet, are added before it,
// and unused ones deleted after it.
//
// The kernel evaluates a chain in the generation in which the packet entered it, but
// looks elements up in the current one. During a commit a packet may find the new
// verdict of its frontend and continue in the new lane, which has no rules in the
// packet's generation. It leaves untranslated, and its conntrack entry keeps the
// connection that way (seen on 6.18: a few in 400 commits at 25,000 new flows
// a second).
//
// Where ranges of ports change, frontends that end leave in another transaction: see
// moves. Where clients outside of the cluster lose slots to others, that comes in one before all else:
// see narrowClasses.
func (p *Plan) Phases() []*Plan {
	if len(p.Changes) == 1 {
		return []*Plan{p}
	}
	// Where a table is added, deleted or replaced, or a map redeclared, only the
	// bridge has several phases.
	inOne, limited := make(map[model.Family]bool), make(map[limitedFrontend]bool)
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Kind() == "table" || c.redeclaresMap() {
			inOne[c.Family] = true
		}
		if c.Kind() != "element" {
			continue
		}
		if by := nft.IDOf(c.Set.Name).Name; by == nft.AllowFrontendsSet || by == nft.FirewalledSet {
			limited[limitedFrontend{c.Family, by, idOf(c)}] = true
		}
	}
	moves := p.rangeMoves()
	of := func(c *Change) phase {
		switch {
		case c.passing != 0:
			return c.passing
		case inOne[c.Family]:
			return turn
		case c.narrows:
			return narrow
		}
		n := phaseOf(c)
		if c.isFirewalled() && limited[limitedFrontend{c.Family, nft.AllowFrontendsSet, idOf(c)}] && !moves[c.Family].changes(idOf(c)) {
			n = narrow // so that neither list is missing for a moment
			if c.Verb == Delete {
				n = leave
			}
		}
		if by := c.allows(); by != "" && (!limited[limitedFrontend{c.Family, by, idOf(c)}] || moves[c.Family].changesPorts(c)) {
			n = turn // other clients of a list that is there before and afterwards, or intervals that may overlap
		}
		if n != turn || moves[c.Family] == nil {
			return n
		}
		return moves[c.Family].phaseOf(c)
	}
	phases := make([]phase, len(p.Changes))
	var sizes [tidy + 1]int
	for i := range p.Changes {
		phases[i] = of(&p.Changes[i])
		sizes[phases[i]]++
	}
	var out []*Plan
	for n, size := range sizes {
		switch size {
		case 0:
			continue
		case len(p.Changes):
			return []*Plan{p}
		}
		part := &Plan{Changes: make([]Change, 0, size), services: p.services}
		for i := range p.Changes {
			if phases[i] == phase(n) {
				part.Changes = append(part.Changes, p.Changes[i])
			}
		}
		out = append(out, part)
	}
	return out
}

// limitedFrontend is a frontend that begins or ceases to have a list of allowed clients.
type limitedFrontend struct {
	family model.Family
	by     string // the set of frontends with such a list
	id     model.FrontendID
}

// isFirewalled reports whether a frontend begins or ceases to have source ranges.
func (c *Change) isFirewalled() bool {
	return c.Kind() == "element" && nft.IDOf(c.Set.Name).Name == nft.FirewalledSet
}

// allows returns the set of the frontends to which an element admits clients; empty: it admits none.
func (c *Change) allows() string {
	switch {
	case c.Kind() != "element":
		return ""
	case nft.IDOf(c.Set.Name).Name == nft.SourceRangesSet:
		return nft.FirewalledSet
	case nft.RowOf(c.Set.Name).Decides == nft.AllowFrontendsSet:
		return nft.AllowFrontendsSet
	}
	return ""
}

// phase is the place of a change among the transactions of a plan.
type phase uint8

const (
	prepare phase = iota + 1
	narrow        // see narrowClasses
	turn
	swap // of ranges of ports
	leave
	tidy
)

func phaseOf(c *Change) phase {
	isEarly := c.Kind() == "element" && nft.RowOf(c.Set.Name).Early
	isSet := c.Kind() == "set" || c.Kind() == "map"
	switch {
	case c.Verb == Delete && (isEarly || isSet || c.Chain != nil):
		return tidy
	case c.Verb == Replace && c.Chain != nil && isAllow(c.Chain.Name) && hasRules(c.Chain.Rules, c.OldRules, c.Family):
		return prepare
	case c.Chain != nil && c.Chain.Hook != nft.NoHook:
		return turn
	case c.Verb == Add && (isEarly || isSet || c.Chain != nil) || c.fills:
		return prepare
	}
	return turn
}

// isAllow reports whether a chain looks into lists of allowed clients. A list must be there
// when a frontend begins to have one: a packet that is under way would find the frontend,
// and not its client.
func isAllow(chain string) bool {
	return slices.ContainsFunc(nft.Shapes[:], func(s nft.Shape) bool { return chain == s.Chain(nft.AllowChain) })
}

// isList reports whether a set has clients that frontends allow or deny, or the frontends that do.
func isList(set string) bool {
	row := nft.RowOf(set)
	return row.Drops == nft.NotAdmitted || row.Drops == nft.IsDenied || row.Decides != ""
}

// hasRules reports whether all of some rules are among others.
func hasRules(rules, all []nft.Rule, f model.Family) bool {
	return !slices.ContainsFunc(all, func(r nft.Rule) bool {
		return !slices.ContainsFunc(rules, func(o nft.Rule) bool { return o.Text(f) == r.Text(f) })
	})
}

// exchangesRules reports whether a chain gets rules and loses others: of the frontends that come and
// leave, some may need the ones, and some the others. A chain that loses a list of allowed clients
// does so with the clients.
func (c *Change) exchangesRules() bool {
	return c.Verb == Replace && c.Chain != nil && !hasRules(c.Chain.Rules, c.OldRules, c.Family) &&
		(isAllow(c.Chain.Name) || !hasRules(c.OldRules, c.Chain.Rules, c.Family))
}

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
//
// Where a chain exchanges rules, frontends that leave may need the old ones, and those that come the new
// ones: all that directs packets changes in one transaction, and a port that moves has no frontend for
// that moment.
type moves struct {
	ended   map[model.FrontendID]bool // frontends that end
	begun   map[model.FrontendID]bool // frontends of one port that begin
	changed map[model.FrontendID]bool // ranges that end, begin, or get or lose ports
	at      map[netip.Addr]addressMoves
	atOnce  bool // a chain exchanges rules
}

// addressMoves are what changes at an address.
type addressMoves struct {
	ranges bool // ranges that end, begin, or get or lose ports
	first  bool // it gets its first range
	last   bool // it loses its last one
	limits bool // ranges get source ranges
	begins bool // frontends of one port begin
	ends   bool // frontends of one port stay, and are masqueraded no more
}

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
			out[c.Family] = &moves{ended: make(map[model.FrontendID]bool), begun: make(map[model.FrontendID]bool), changed: make(map[model.FrontendID]bool), at: make(map[netip.Addr]addressMoves)}
		}
		out[c.Family].changed[idOf(c)] = true
	}
	if out == nil {
		return nil
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		switch m := out[c.Family]; {
		case m == nil:
		case c.exchangesRules():
			m.atOnce = true
		case c.Kind() == "element":
			m.addElement(c)
		}
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if m := out[c.Family]; m != nil && c.endsMasquerading() && !m.ended[idOf(c)] {
			at := m.at[c.elementKey().Address]
			at.ends = true
			m.at[c.elementKey().Address] = at
		}
	}
	return out
}

// endsMasquerading reports whether connections to a frontend of one port are masqueraded no more. Those
// that a range at its address has masqueraded would be.
func (c *Change) endsMasquerading() bool {
	return c.Verb == Delete && c.Kind() == "element" && (c.Set.Name == nft.MasqFrontendsSet || c.Set.Name == nft.SNATFrontendsMap)
}

// changes reports whether a frontend is a range that ends, begins, or gets or loses ports.
func (m *moves) changes(f model.FrontendID) bool { return m != nil && m.changed[f] }

// changesPorts reports whether an interval has the ports of a range that ends, begins, or gets or loses some. One that
// ends can leave later if no other one comes, which it may overlap.
func (m *moves) changesPorts(c *Change) bool {
	return c.Set.Interval && nft.OfRanges(c.Set.Name) && m.changes(idOf(c)) &&
		(c.Verb != Delete || m.at[c.elementKey().Address].limits)
}

func (m *moves) addElement(c *Change) {
	a := c.elementKey().Address
	at := m.at[a]
	switch {
	case c.Set.Name == nft.RangesMap:
		at.ranges = true
	case c.Set.Name == nft.RangeAddressesSet:
		at.first, at.last = c.Verb == Add, c.Verb == Delete
	case c.Verb == Add && nft.OfRanges(c.Set.Name) && c.Set.Interval:
		at.limits = true
	case c.Verb == Add && c.Set.Name == nft.ServicesMap:
		at.begins, m.begun[idOf(c)] = true, true
	}
	if m.at[a] = at; c.Verb == Delete && nft.RowOf(c.Set.Name).Contents == nft.Services {
		m.ended[idOf(c)] = true
	}
}

func (c *Change) elementKey() nft.Key { return cmp.Or(c.New, c.Old).Key }

func idOf(c *Change) model.FrontendID { return c.Set.FrontendID(c.elementKey()) }

func (m *moves) phaseOf(c *Change) phase {
	switch {
	case c.Kind() == "element":
		return m.phaseOfElement(c)
	case c.Chain != nil && c.Verb == Replace && !m.atOnce && hasRules(c.OldRules, c.Chain.Rules, c.Family):
		return tidy // which frontends may need that leave after the turn: a list of denied clients, for example
	}
	return turn
}

func (m *moves) phaseOfElement(c *Change) phase {
	f, deletes, ofRange := idOf(c), c.Verb == Delete, nft.OfRanges(c.Set.Name)
	at := m.at[f.Address]
	switch {
	case c.Set.Name == nft.RangeAddressesSet:
		if deletes && m.lingers(f.Address) {
			return leave
		}
	case ofRange && m.changed[f] && at.first:
		return prepare
	case ofRange && m.changed[f] && at.last, ofRange && deletes && m.ended[f] && !c.Set.Interval:
		return tidy
	case m.atOnce:
		return turn
	case c.Verb == Add && m.begun[f] && at.ranges && isList(c.Set.Name):
		return narrow // a range may have served the port: a client that both exclude must not find the frontend without
	case deletes && nft.IDOf(c.Set.Name).Name == nft.HairpinSet:
		return tidy // the endpoint of a frontend that may leave after the turn
	case ofRange && m.changed[f]:
		return swap
	case !ofRange && deletes && m.ended[f] && (at.ranges && (!at.last || m.lingers(f.Address)) || f.Address.IsUnspecified()):
		return leave
	}
	return turn
}

// lingers reports whether packets to an address reach its last range until other frontends are there: one
// of them may have a port of the range. They may be NodePorts that several addresses of the node serve.
func (m *moves) lingers(a netip.Addr) bool {
	own, node := m.at[a], m.at[model.Wildcard(model.FamilyOf(a))]
	return !m.atOnce && (own.begins || node.begins) && !own.ends && !node.ends
}
