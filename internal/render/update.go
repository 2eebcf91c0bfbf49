package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// tableChange is the effect of a change on one table, and the previous counts, for Undo.
type tableChange struct {
	table         *table
	before, after *part

	lanes    []*laneState // that the change concerns
	options  map[option]int32
	elements map[sharedElement]int32
	used     options // all
	exists   bool
	few      [4]*laneState

	exchanges []nft.Exchange
}

func (u *tableChange) touchLane(l *laneState) {
	if l.touched != u.table.changes {
		l.touched, l.before = u.table.changes, l.frontends
		u.lanes = append(u.lanes, l)
	}
}

// beginChange begins a change. Without a table before all counts were zero.
func (t *table) beginChange() *tableChange {
	u := &tableChange{table: t, before: newPart(), after: newPart(), used: t.usedOptions(), exists: t.exists}
	t.changes++
	u.lanes = u.few[:0]
	if t.exists {
		if len(t.noted) <= usualElements && t.noted != nil {
			clear(t.noted)
		} else {
			t.noted = make(map[sharedElement]int32)
		}
		u.elements = t.noted
	}
	return u
}

func (t *table) undoChange(u *tableChange) {
	if !u.exists {
		*t = *newTable(t.family, t.observe)
		return
	}
	for _, l := range u.lanes {
		if l.frontends = l.before; l.before == absent {
			delete(t.lanes, l.use)
		} else {
			t.lanes[l.use] = l
		}
	}
	restoreCounts(t.options, u.options)
	restoreCounts(t.elements, u.elements)
	t.trackSizes(u.after, u.before)
	t.exists = true
}

func (t *table) trackSizes(before, after *part) {
	for i := range before.elements {
		c := &before.elements[i]
		if now := len(after.elements.elementsOf(c.set)); now != len(c.elements) {
			t.sizes[c.set] += now - len(c.elements)
		}
	}
	for i := range after.elements {
		if c := &after.elements[i]; len(before.elements.elementsOf(c.set)) == 0 && len(c.elements) > 0 {
			t.sizes[c.set] += len(c.elements)
		}
	}
}

func restoreCounts[K comparable](counts, was map[K]int32) {
	for k, n := range was {
		if counts[k] = n; n == 0 {
			delete(counts, k)
		}
	}
}

// count adds n to a number, and keeps the number before the change in was, if that is not
// nil.
func count[K comparable](counts, was map[K]int32, k K, n int32) (now int32) {
	before := counts[k]
	if _, known := was[k]; !known && was != nil {
		was[k] = before
	}
	if now = before + n; now == 0 {
		delete(counts, k)
	} else {
		counts[k] = now
	}
	return now
}

func (t *table) count(f *fragment, n int32, u *tableChange) {
	for i := range f.elements {
		m := &f.elements[i]
		switch {
		case !isShared(m.set):
		case u.after.isLoaded:
			if count(t.elements, nil, sharedKey(m), n) == n { // the first one that needs it
				u.after.add(m.set, m.Element)
			}
		default:
			count(t.elements, u.elements, sharedKey(m), n)
		}
	}
	for _, l := range f.lanes {
		t.countLane(l, n, u)
		if l.bindings != "" {
			t.countLane(laneUse{lane: l.lane}, n, u)
		}
	}
	if len(f.options) > 0 && u.exists && u.options == nil {
		u.options = make(map[option]int32)
	}
	for _, o := range f.options {
		count(t.options, u.options, o, n)
	}
}

// countLane counts a lane. The first lanes of a change are compared before the map is asked, whose hash
// takes longer: most frontends have one of them.
func (t *table) countLane(use laneUse, n int32, u *tableChange) {
	for _, known := range u.lanes[:min(len(u.lanes), len(u.few))] {
		if known.use == use {
			known.frontends = max(known.frontends, 0) + n
			return
		}
	}
	l := t.lanes[use]
	if l == nil {
		l = &laneState{use: use, frontends: absent, chain: use.laneChain(t.observe)}
		t.lanes[use] = l
	}
	u.touchLane(l)
	l.frontends = max(l.frontends, 0) + n
}

func (t *table) changeRoutes(c *composer, changes []model.RouteChange, u *tableChange) {
	c.pairChanges(changes, u)
	u.before.reserveElements(c, changes, func(c *model.RouteChange) *model.Route { return c.Old })
	u.after.reserveElements(c, changes, func(c *model.RouteChange) *model.Route { return c.New })
	take := func(i int, r, other *model.Route, n int32, to *part) {
		if r != nil {
			c.other, c.exchange, c.comes = other, c.pairs[i], n > 0
			c.composeFragment(changes[i].Frontend, r, &c.memory)
			t.count(&c.memory, n, u)
			to.addFragment(&c.memory)
		}
	}
	for i := range changes {
		take(i, changes[i].Old, changes[i].New, -1, u.before)
	}
	for i := range changes {
		take(i, changes[i].New, changes[i].Old, 1, u.after)
	}
	elements := u.elements
	if !t.exists {
		elements = t.elements
		for _, f := range t.kept {
			t.count(f, 1, u)
			u.after.addFragment(f)
		}
	}
	if !u.after.isLoaded {
		u.before.addShared(elements, u.elements)
		u.after.addShared(elements, t.elements)
	}
	sortLanes(u.lanes)
	for _, l := range u.lanes {
		t.changeLane(l, u)
	}
	if len(u.options) == 0 {
		return
	}
	for _, l := range t.idleLanes() {
		if l.touched != t.changes && !t.recallsState(&l.use) {
			u.touchLane(l)
			t.changeLane(l, u)
		}
	}
}

// recallsState reports whether the chain exists in which a lane looks up clients, or the map
// in which the lane of a range looks up endpoints, or clients are bound.
func (t *table) recallsState(l *laneUse) bool {
	bindings := l.bindings
	switch {
	case l.isLimit(): // what clients did counts from the time when the limit is set (4.90)
		return false
	case l.relays: // it goes with the chain that guards the port
		return false
	case l.isSources(): // the machine may lose the addresses
		return false
	case l.lane.shape == nft.OfRange:
		return t.usedOptions().hasKind(ranged)
	case l.isBinder():
		bindings = l.binds.Bindings()
	}
	return bindings == "" || t.options[option{kind: sticky, bindings: bindings}] > 0
}

// changeLane adds the chain of a lane where it was, and where it is to be. A lane
// that nothing uses any more stays, idle, as long as its destination.
func (t *table) changeLane(l *laneState, u *tableChange) {
	there, used := l.before != absent, l.frontends > 0
	if there {
		u.before.addLane(&l.use, l.chain)
	}
	if used || there && t.recallsState(&l.use) {
		u.after.addLane(&l.use, l.chain)
	} else {
		delete(t.lanes, l.use)
	}
}

func (t *table) idleLanes() []*laneState {
	var out []*laneState
	for _, l := range t.lanes {
		if l.frontends == 0 {
			out = append(out, l)
		}
	}
	sortLanes(out)
	return out
}

func sortLanes(all []*laneState) {
	slices.SortFunc(all, func(a, b *laneState) int { return a.use.compare(b.use) })
}

func (t *table) dropIdle(u *tableChange) {
	for _, l := range t.idleLanes() {
		u.touchLane(l)
		delete(t.lanes, l.use)
	}
}
