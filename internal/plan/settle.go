package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Settle returns desired with the endpoints of each frontend in the slots that they
// have in current. New endpoints take the slots of removed ones. The slot of an
// endpoint within a lane has no meaning, so both rulesets do the same. But
// replacing an endpoint then changes one element, where render's order would move
// many. Frontends with the scheduler source-hash keep render's order: their slots decide
// which clients an endpoint gets, on every machine alike.
//
// Settle is idempotent, and changes nothing for an empty current ruleset. It does
// not modify desired; the result shares its parts.
func Settle(current, desired *nft.Ruleset) *nft.Ruleset {
	out := &nft.Ruleset{Tables: make([]*nft.Table, 0, len(desired.Tables))}
	for _, t := range desired.Tables {
		settled := *t
		settled.Sets = make([]*nft.Set, 0, len(t.Sets))
		for _, s := range t.Sets {
			before := findSet(current, t.Family, s)
			if s.HasSlots() && len(before.Elements) > 0 && !sharesMemory(before.Elements, s.Elements) {
				s = settleSet(before, s, NewLanes(t))
			}
			settled.Sets = append(settled.Sets, s)
		}
		out.Tables = append(out.Tables, &settled)
	}
	return out
}

// sharesMemory reports whether two lists are one: a table that is read back shares the elements
// that are as expected.
func sharesMemory(a, b []nft.Element) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// findSet returns the set of current that s replaces, or an empty one.
func findSet(current *nft.Ruleset, f model.Family, s *nft.Set) *nft.Set {
	if t := current.Table(f); t != nil {
		if o := t.Set(s.Name); o != nil && o.Same(s) {
			return o
		}
	}
	return &nft.Set{}
}

func settleSet(current, desired *nft.Set, l *Lanes) *nft.Set {
	out := *desired
	out.Elements = make([]nft.Element, 0, len(desired.Elements))
	cur, want := current.Elements, desired.Elements
	var memory [4]uint32
	for len(want) > 0 {
		var group, before []nft.Element
		group, want = CutFrontend(want)
		frontend := group[0].Key.Frontend()
		for len(cur) > 0 && cur[0].Key.Frontend().Compare(frontend) < 0 {
			_, cur = CutFrontend(cur)
		}
		if len(cur) > 0 && cur[0].Key.Frontend() == frontend {
			before, cur = CutFrontend(cur)
		}
		borders, hashed := l.laneBorders(desired, frontend, memory[:])
		if hashed {
			out.Elements = append(out.Elements, group...)
			continue
		}
		for _, border := range borders {
			n := slices.IndexFunc(group, func(e nft.Element) bool { return e.Key.Slot >= border })
			if n > 0 {
				out.Elements = appendSettled(out.Elements, before, group[:n])
				group = group[n:]
			}
		}
		out.Elements = appendSettled(out.Elements, before, group)
	}
	return &out
}

// Lanes holds the slots that the lanes of a table choose from.
type Lanes struct {
	table *nft.Table
	// Of a table with many lanes; nil: it has few, which are searched one by one.
	choices  map[string]choice // by the name of the chain
	verdicts map[nft.Class]nft.Verdict
}

// choice is what a lane does: it chooses one of some slots, or continues in another lane.
type choice struct {
	slots nft.Slots
	isEnd bool
	goTo  string
}

// fewLanes is as many as the part of a table has that most changes affect.
const fewLanes = 8

// NewLanes returns the lanes of a table.
func NewLanes(t *nft.Table) *Lanes {
	l := &Lanes{table: t}
	lanes := t.Set(nft.LanesMap)
	if len(t.Chains) <= fewLanes && (lanes == nil || len(lanes.Elements) <= fewLanes) {
		return l
	}
	l.choices, l.verdicts = make(map[string]choice, len(t.Chains)), make(map[nft.Class]nft.Verdict)
	for _, c := range t.Chains {
		l.choices[c.Name] = choiceOf(c)
	}
	if lanes != nil {
		for i := range lanes.Elements {
			l.verdicts[nft.Class(lanes.Elements[i].Key.Slot)] = lanes.Elements[i].Value.Verdict
		}
	}
	return l
}

func choiceOf(c *nft.Chain) (out choice) {
	for _, r := range c.Rules {
		for _, s := range r {
			switch s := s.(type) {
			case nft.DNAT:
				if slots, ok := s.Slots(); ok {
					out.slots, out.isEnd = slots, true
				}
			case nft.Choose:
				out.slots, out.isEnd = s.Slots, true
			case nft.Redirect: // the relay takes all endpoints
				out.slots, out.isEnd = nft.Slots{First: nft.FirstSlot, Count: nft.MaxSlots}, true
			case nft.Verdict:
				if s.Action == nft.Goto {
					out.goTo = s.Chain
				}
			}
		}
	}
	return out
}

func (l *Lanes) choiceOfLane(name string) choice {
	if l.choices != nil {
		return l.choices[name]
	}
	if c := l.table.Chain(name); c != nil {
		return choiceOf(c)
	}
	return choice{}
}

func (l *Lanes) Verdict(c nft.Class) nft.Verdict {
	if l.verdicts != nil {
		return l.verdicts[c]
	}
	if lanes := l.table.Set(nft.LanesMap); lanes != nil {
		for i := range lanes.Elements {
			if e := &lanes.Elements[i]; nft.Class(e.Key.Slot) == c {
				return e.Value.Verdict
			}
		}
	}
	return nft.Verdict{}
}

// Drops reports whether connections to the frontend of an element in a map of classes or
// verdicts are dropped.
func (l *Lanes) Drops(e *nft.Element) bool {
	rejects, refuses := cmp.Or(e.Value.Verdict, l.Verdict(e.Value.Class)).Refuses()
	return refuses && !rejects
}

// Relays reports whether connections to the frontend of an element in a map of classes go to
// the relay of this machine.
func (l *Lanes) Relays(e *nft.Element) bool { return l.Verdict(e.Value.Class).Chain == nft.RelayChain }

// Of returns the slots that a map of classes, or of verdicts, leads to for a frontend,
// none if it rejects or drops. It reports whether the map has the frontend.
func (l *Lanes) Of(set string, f model.Frontend) (nft.Slots, bool) {
	s := l.table.Set(set)
	e, ok := s.Find(f)
	if !ok {
		return nft.Slots{}, false
	}
	lane := e.Value.Verdict.Chain
	if slices.Equal(s.Data, []nft.Datatype{nft.ClassID}) {
		lane = l.Verdict(e.Value.Class).Chain
	}
	c := l.choiceOfLane(lane)
	if !c.isEnd { // it is a sticky one
		c = l.choiceOfLane(c.goTo)
	}
	return c.slots, true
}

// laneBorders returns the slots of a frontend in a map of endpoints at which a lane starts
// or ends, in ascending order. An endpoint must not move across one. It reports whether
// a lane chooses by a hash of the client.
// The memory is used for the result.
func (l *Lanes) laneBorders(endpoints *nft.Set, f model.Frontend, memory []uint32) (out []uint32, hashed bool) {
	names := [...]string{nft.ServicesMap, nft.LocalServicesMap}
	if endpoints.HasRanges() {
		names = [...]string{nft.RangeServicesMap, nft.RangeLocalServicesMap}
	}
	out = memory[:0]
	for _, name := range names {
		if slots, ok := l.Of(name, f); ok {
			out = append(out, slots.First, slots.First+slots.Count)
			hashed = hashed || slots.Scheduler.ByClient()
		}
	}
	slices.Sort(out)
	return out, hashed
}

// CutFrontend splits off the elements of the first frontend.
func CutFrontend(elements []nft.Element) (first, rest []nft.Element) {
	f := elements[0].Key.Frontend()
	n := 1
	for n < len(elements) && elements[n].Key.Frontend() == f {
		n++
	}
	return elements[:n], elements[n:]
}

// appendSettled appends the elements of some slots of a frontend. A slot keeps its
// endpoint if that is still wanted there. An endpoint may take several slots.
func appendSettled(out, before, group []nft.Element) []nft.Element {
	first := int(group[0].Key.Slot)
	for len(before) > 0 && int(before[0].Key.Slot) < first {
		before = before[1:]
	}
	for len(before) > 0 && int(before[len(before)-1].Key.Slot) >= first+len(group) {
		before = before[:len(before)-1]
	}
	if isInPlace(before, group, first) {
		return append(out, group...)
	}
	var few, others [FewSlots]uint32
	var fewKept, fewPlaced [FewSlots]bool
	kept, placed := slices.Grow(fewKept[:0], len(group))[:len(group)], slices.Grow(fewPlaced[:0], len(group))[:len(group)]
	start, stay := len(out), AppendByEndpoint(others[:0], before)
	out = append(out, group...)
	for wanted := AppendByEndpoint(few[:0], group); len(wanted) > 0; {
		e := group[wanted[0]].Value
		var want, have []uint32
		want, wanted = cutEndpoint(wanted, group, e.Endpoint)
		have, stay = cutEndpoint(stay, before, e.Endpoint)
		have = have[:min(len(have), len(want))]
		for i, b := range have {
			slot := int(before[b].Key.Slot) - first
			kept[slot], placed[want[len(want)-1-i]] = true, true
			out[start+slot].Value = before[b].Value
		}
	}
	next := 0
	for i := range group {
		if placed[i] {
			continue
		}
		for kept[next] {
			next++
		}
		out[start+next].Value = group[i].Value
		next++
	}
	return out
}

// FewSlots is as many as are sorted without an allocation.
const FewSlots = 16

// AppendByEndpoint appends the positions of elements in the order of their endpoints.
func AppendByEndpoint(at []uint32, all []nft.Element) []uint32 {
	at = slices.Grow(at, len(all))
	for i := range all {
		at = append(at, uint32(i))
	}
	slices.SortFunc(at, func(a, b uint32) int {
		return cmp.Or(all[a].Value.Endpoint.Compare(all[b].Value.Endpoint), cmp.Compare(a, b))
	})
	return at
}

// cutEndpoint splits off the positions of the elements of an endpoint, and drops those of endpoints before it.
func cutEndpoint(at []uint32, all []nft.Element, e netip.AddrPort) (own, rest []uint32) {
	for len(at) > 0 && all[at[0]].Value.Endpoint.Compare(e) < 0 {
		at = at[1:]
	}
	n := 0
	for n < len(at) && all[at[n]].Value.Endpoint == e {
		n++
	}
	return at[:n], at[n:]
}

// isInPlace reports whether the endpoints of a group, which begins at a slot, are in their
// slots already.
func isInPlace(before, group []nft.Element, first int) bool {
	n := 0
	for i := range before {
		slot := int(before[i].Key.Slot) - first
		if slot >= 0 && slot < len(group) && before[i].Value == group[slot].Value {
			n++
		}
	}
	return n == len(group)
}
