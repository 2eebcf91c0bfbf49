package plan

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// narrowClasses finds the frontends whose class of before must not lead to endpoints of afterwards, which a packet
// would find that is under way. Their class changes in a transaction before all others:
//
//   - They lose slots for clients outside of the cluster, while other endpoints take these slots: those of other
//     nodes, for example, which may not be able to answer. The class with fewer slots comes early. Slots of their own, which
//     it may lead to, have endpoints of before until the turn.
//   - They bind clients no more, and refuse those that get an endpoint to which none is bound.
//
// The changes from an index on are those of one table.
func (p *Plan) narrowClasses(first int, cur, want *nft.Table) {
	var classes map[model.FrontendID][]*Change
	for i := range p.Changes[first:] {
		c := &p.Changes[first+i]
		if c.Verb != Replace || c.New == nil {
			continue
		}
		if in := nft.RowOf(c.Set.Name).Contents; in == nft.Services || in == nft.LocalServices {
			if classes == nil {
				classes = make(map[model.FrontendID][]*Change)
			}
			classes[idOf(c)] = append(classes[idOf(c)], c)
		}
	}
	if len(classes) == 0 {
		return
	}
	n := narrowing{before: NewLanes(cur), after: NewLanes(want), changes: p.Changes[first:], endpoints: make(map[model.FrontendID][]int)}
	for i := range n.changes {
		if c := &n.changes[i]; c.New != nil && nft.RowOf(c.Set.Name).Contents == nft.Endpoints && classes[idOf(c)] != nil {
			n.endpoints[idOf(c)] = append(n.endpoints[idOf(c)], i)
		}
	}
	for _, narrower := range []bool{true, false} { // a class that both are true of has fewer slots
		for i := range n.changes {
			c := &n.changes[i]
			if c.Verb == Replace && c.New != nil && nft.RowOf(c.Set.Name).Contents == nft.Endpoints {
				isEarly := func(class *Change) bool { return n.addClass(class, c.New.Key.Slot, narrower) }
				classes[idOf(c)] = slices.DeleteFunc(classes[idOf(c)], isEarly)
			}
		}
	}
	p.Changes = append(p.Changes, n.passing...)
}

type narrowing struct {
	before, after *Lanes
	changes       []Change                   // of the table
	endpoints     map[model.FrontendID][]int // changes of endpoints, of frontends whose class changes
	passing       []Change                   // temporary ones
}

// addClass lets a class change early if a slot gets another endpoint that it must not lead to, and reports
// whether it does: because it loses the slot, or because it binds no more.
func (n *narrowing) addClass(c *Change, slot uint32, narrower bool) bool {
	old, _ := n.before.Of(c.Set.Name, c.New.Key.Frontend())
	now, _ := n.after.Of(c.Set.Name, c.New.Key.Frontend())
	isNarrower := nft.RowOf(c.Set.Name).Contents == nft.LocalServices && !now.Has(slot)
	if !old.Has(slot) || n.before.Relays(c.Old) || isNarrower != narrower {
		return false
	}
	was := n.before.choiceOfLane(n.before.Verdict(c.Old.Value.Class).Chain)
	is := n.after.choiceOfLane(n.after.Verdict(c.New.Value.Class).Chain)
	binds, bound := !is.isEnd && is.goTo != "", !was.isEnd && was.goTo != ""
	if isNarrower && now.First != old.First {
		n.keepEndpoints(idOf(c), old, now)
	}
	switch {
	case isNarrower && binds && !bound: // it refuses endpoints of before, to which no client is bound
		n.passClass(c, n.after.table, is.goTo)
	case isNarrower:
		c.narrows = true
	case bound && is.isEnd:
		n.passClass(c, n.before.table, was.goTo)
	default:
		return false
	}
	return true
}

// passClass adds a change to the class of a lane, which is there before the turn.
func (n *narrowing) passClass(c *Change, in *nft.Table, lane string) {
	for _, e := range in.Set(nft.LanesMap).Elements {
		if e.Value.Verdict.Chain == lane {
			early := *c
			early.New, early.passing = &nft.Element{Key: c.New.Key, Value: nft.Value{Class: nft.Class(e.Key.Slot)}, Comment: c.Old.Comment}, narrow
			c.Old = early.New
			n.passing = append(n.passing, early)
			return
		}
	}
}

// keepEndpoints lets the slots to which a frontend leads now have endpoints of its old slots until the turn: until then all
// else is as before, too.
func (n *narrowing) keepEndpoints(of model.FrontendID, old, now nft.Slots) {
	var in *nft.Set
	var kept []nft.Value
	for _, i := range n.endpoints[of] {
		c := &n.changes[i]
		if !now.Has(c.New.Key.Slot) {
			continue
		}
		if c.Set != in {
			in, kept = c.Set, n.before.endpointsIn(c.Set.Name, of, old)
		}
		if len(kept) == 0 || slices.Contains(kept, c.New.Value) {
			continue
		}
		early := *c
		early.New, early.passing = &nft.Element{Key: c.New.Key, Value: kept[i%len(kept)], Comment: c.New.Comment}, prepare
		c.Verb, c.Old = Replace, early.New
		n.passing = append(n.passing, early)
	}
}

// endpointsIn returns the endpoints of a frontend in some slots.
func (l *Lanes) endpointsIn(set string, of model.FrontendID, from nft.Slots) (out []nft.Value) {
	in := l.table.Set(set)
	if in == nil {
		return nil
	}
	first := nft.Key{Address: of.Address, Protocol: of.Protocol, Port: of.Port, Slot: from.First}
	at, _ := slices.BinarySearchFunc(in.Elements, first, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	for _, e := range in.Elements[at:] {
		if in.FrontendID(e.Key) != of || !from.Has(e.Key.Slot) {
			break
		}
		out = append(out, e.Value)
	}
	return out
}
