package plan

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// narrowClasses finds the frontends that lose slots for clients outside of the cluster, while other endpoints take
// these slots: those of other nodes, for example. A packet that has found the class of before would find the endpoint
// of afterwards, which is for other clients and may not be able to answer. So the class with fewer
// slots comes in a transaction before all others. The changes from an index on are those of one table.
func (p *Plan) narrowClasses(first int, cur, want *nft.Table) {
	var locals map[model.FrontendID]*Change
	for i := range p.Changes[first:] {
		c := &p.Changes[first+i]
		if c.Verb == Replace && c.New != nil && nft.RowOf(c.Set.Name).Contents == nft.LocalServices {
			if locals == nil {
				locals = make(map[model.FrontendID]*Change)
			}
			locals[idOf(c)] = c
		}
	}
	if locals == nil {
		return
	}
	before, after := NewLanes(cur), NewLanes(want)
	var passing []Change
	for i := range p.Changes[first:] {
		c := &p.Changes[first+i]
		if c.Verb != Replace || c.New == nil || nft.RowOf(c.Set.Name).Contents != nft.Endpoints {
			continue
		}
		local := locals[idOf(c)]
		if local == nil || before.Relays(local.Old) {
			continue
		}
		old, _ := before.Of(local.Set.Name, local.New.Key.Frontend())
		now, _ := after.Of(local.Set.Name, local.New.Key.Frontend())
		if old.Has(c.New.Key.Slot) && !now.Has(c.New.Key.Slot) {
			delete(locals, idOf(c))
			passing = local.narrow(before, after, passing)
		}
	}
	p.Changes = append(p.Changes, passing...)
}

// narrow lets a class change early. One that begins to bind clients refuses them endpoints of before, to which
// it does not bind: until the turn, its lane without affinity takes its place, by a temporary change.
func (c *Change) narrow(before, after *Lanes, passing []Change) []Change {
	was, is := before.Verdict(c.Old.Value.Class).Chain, after.Verdict(c.New.Value.Class).Chain
	plain := after.choiceOfLane(is)
	if c.narrows = plain.isEnd || plain.goTo == "" || !before.choiceOfLane(was).isEnd; c.narrows {
		return passing
	}
	for _, lane := range after.table.Set(nft.LanesMap).Elements {
		if lane.Value.Verdict.Chain == plain.goTo {
			early := *c
			early.New, early.passing = &nft.Element{Key: c.New.Key, Value: nft.Value{Class: nft.Class(lane.Key.Slot)}}, narrow
			c.Old = early.New
			return append(passing, early)
		}
	}
	return passing
}
