package apply

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestPhases: 13.14. It looks at what a packet may meet that is under way while a
// transaction is committed: rules of before, and elements of after, or slots of
// after behind a verdict of before. In every transaction of random steps, and
// of patches, each lane that a frontend leads to afterwards had its rules
// before, and each slot that it led to before is there afterwards.
func TestPhases(t *testing.T) {
	w := workload.NewWorld(11)
	k := newFake()
	looked := 0
	k.seen = func(before, after *nft.Ruleset) {
		for _, f := range model.Families {
			if cur, next := before.Table(f), after.Table(f); cur != nil && next != nil {
				looked += checkBetween(t, cur, next)
			}
		}
	}
	a := New(k, slog.New(slog.DiscardHandler))
	for range steps / 2 {
		if _, err := a.Apply(nft.FromNothing(w.Step())); err != nil {
			t.Fatal(err)
		}
	}
	f := &walker{w, newFollower(k)}
	f.step(t, w.All()...)
	for range steps / 2 {
		i := w.R.IntN(workload.WorldSize)
		w.Replace(i)
		f.step(t, i)
	}
	if looked < steps {
		t.Errorf("only %d frontends were looked at", looked)
	}
}

// checkBetween returns the number of frontends that it has looked at. A packet under way
// looks up each element as it is before or after the transaction, never before it after a
// lookup of afterwards, and passes the rules of before.
func checkBetween(t *testing.T, before, after *nft.Table) (looked int) {
	t.Helper()
	for _, s := range after.Sets {
		if o := before.Set(s.Name); o != nil && o.Counters != s.Counters {
			return 0 // a packet may be refused at this moment
		}
	}
	b := between{t, before, after, plan.NewLanes(after)}
	b.moves()
	b.attributes()
	for _, t := range []*nft.Table{before, after} {
		for _, e := range slices.Concat(elements(t, nft.ServicesMap), elements(t, nft.LocalServicesMap)) {
			looked += b.lane(e.Key, b.lanes.Verdict(e.Value.Class))
		}
		if !leadsToRanges(before) {
			continue // the rules for ranges come with the next transaction, or left with the last one
		}
		for _, e := range elements(t, nft.RangesMap) {
			if f := e.Key.Frontend(); hasRanges(before, f) || hasRanges(after, f) { // without, it leads nowhere yet
				looked += b.number(f)
			}
		}
	}
	b.addresses()
	return looked
}

// moves checks that a port that has a frontend before and after has one for packets that
// look for a frontend of their own before the transaction and for a range after it, or the
// other way round: the kernel changes ranges after all other elements. Where a chain exchanges rules,
// the port may have none at this moment, and where a frontend of the address that stays is masqueraded no more.
func (b *between) moves() {
	b.t.Helper()
	if slices.ContainsFunc(b.after.Chains, b.exchangesRules) {
		return
	}
	for _, x := range []struct{ exact, other *nft.Table }{{b.before, b.after}, {b.after, b.before}} {
		for _, e := range elements(x.exact, nft.ServicesMap) {
			f := e.Key.Frontend()
			if !hasKey(x.other.Set(nft.ServicesMap), e.Key) && inRange(x.other, f) && !inRange(x.exact, f) && !b.endsMasquerading(f) {
				b.t.Errorf("%s moves between a frontend of its own and a range in one transaction", f)
			}
		}
	}
}

// exchangesRules reports whether a chain gets rules in place of others, or loses a list of allowed clients.
func (b *between) exchangesRules(c *nft.Chain) bool {
	old := b.before.Chain(c.Name)
	lacks := func(all []nft.Rule, r nft.Rule) bool {
		return !slices.ContainsFunc(all, func(o nft.Rule) bool { return o.Text(b.after.Family) == r.Text(b.after.Family) })
	}
	return old != nil && slices.ContainsFunc(old.Rules, func(r nft.Rule) bool { return lacks(c.Rules, r) }) &&
		(strings.HasSuffix(c.Name, nft.AllowChain) || slices.ContainsFunc(c.Rules, func(r nft.Rule) bool { return lacks(old.Rules, r) }))
}

// endsMasquerading reports whether a frontend stays at the address of another one, and is masqueraded no more.
func (b *between) endsMasquerading(f model.Frontend) bool {
	return slices.ContainsFunc([]string{nft.MasqFrontendsSet, nft.SNATFrontendsMap}, func(set string) bool {
		return slices.ContainsFunc(elements(b.before, set), func(e nft.Element) bool {
			s, a := b.after.Set(set), e.Key.Address
			return (a == f.Address || a.IsUnspecified()) && hasKey(b.after.Set(nft.ServicesMap), e.Key) && (s == nil || !hasKey(s, e.Key))
		})
	})
}

// addresses checks that the ranges of an address are there before packets look for them, and until
// none does any more.
func (b *between) addresses() {
	b.t.Helper()
	for _, x := range []struct{ with, without *nft.Table }{{b.after, b.before}, {b.before, b.after}} {
		for _, e := range elements(x.with, nft.RangesMap) {
			f := e.Key.Frontend()
			if leadsToRanges(b.before) && hasRanges(x.with, f) && !hasRanges(x.without, f) && !isNumber(x.without, f) {
				b.t.Errorf("the address of %s, and its ranges, change in one transaction", f)
			}
		}
	}
}

// hasRanges reports whether packets to the address of a frontend look for ranges.
func hasRanges(t *nft.Table, f model.Frontend) bool {
	s := t.Set(nft.RangeAddressesSet)
	return s != nil && hasKey(s, nft.Key{Address: f.Address})
}

// attributes checks that what is known of the number of a range is the same before and
// after a transaction that adds or deletes the number.
func (b *between) attributes() {
	b.t.Helper()
	for _, s := range b.before.Sets {
		o := b.after.Set(s.Name)
		if o == nil || s.Dynamic || len(s.Key) != 3 || s.Key[2] != nft.RangeID {
			continue
		}
		for _, e := range s.Elements {
			if f := e.Key.Frontend(); hasRanges(b.before, f) && isNumber(b.before, f) && !isNumber(b.after, f) && !hasKey(o, e.Key) {
				b.t.Errorf("%s has no %s when a packet with its number comes there", f, s.Name)
			}
		}
	}
}

// inRange reports whether packets to a frontend find a range.
func inRange(t *nft.Table, f model.Frontend) bool {
	return hasRanges(t, f) && slices.ContainsFunc(elements(t, nft.RangesMap), func(e nft.Element) bool {
		r := e.Key.Frontend()
		return r.Address == f.Address && r.Protocol == f.Protocol && r.Port <= f.Port && f.Port <= uint16(e.Key.Slot)
	})
}

// isNumber reports whether a range has the first port of a frontend as its number.
func isNumber(t *nft.Table, f model.Frontend) bool {
	return slices.ContainsFunc(elements(t, nft.RangesMap), func(e nft.Element) bool { return e.Key.Frontend() == f })
}

// leadsToRanges reports whether packets reach the rules for ranges.
func leadsToRanges(t *nft.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c *nft.Chain) bool {
		return c.Hook == nft.Prerouting && slices.ContainsFunc(slices.Concat(c.Rules...), func(s nft.Statement) bool {
			name, _ := nft.SetOf(s)
			return name == nft.RangeAddressesSet
		})
	})
}

// elements returns those of a set that a table may have.
func elements(t *nft.Table, set string) []nft.Element {
	if s := t.Set(set); s != nil {
		return s.Elements
	}
	return nil
}

// between is what checkBetween looks at.
type between struct {
	t             *testing.T
	before, after *nft.Table
	lanes         *plan.Lanes // after
}

// number checks that a packet to a range whose number it has finds the verdict.
func (b *between) number(f model.Frontend) (looked int) {
	b.t.Helper()
	if s := b.after.Set(nft.ServiceMaps[1]); s == nil || !hasKey(s, nft.FrontendKey(f)) {
		b.t.Errorf("%s has a number that leads nowhere", f)
	}
	for _, t := range []*nft.Table{b.before, b.after} {
		for _, name := range []string{nft.ServiceMaps[1], nft.LocalServiceMaps[1]} {
			if s := t.Set(name); s != nil {
				if e, ok := s.Find(f); ok {
					looked += b.lane(e.Key, e.Value.Verdict)
				}
			}
		}
	}
	return looked
}

// lane checks that a packet to a frontend with a verdict gets an endpoint, and returns 1
// if it does.
func (b *between) lane(frontend nft.Key, v nft.Verdict) int {
	b.t.Helper()
	name := v.Chain
	if v.Action == nft.NoAction {
		b.t.Errorf("%s leads nowhere", frontend.Frontend())
	}
	if _, refuses := v.Refuses(); refuses || name == "" {
		return 0
	}
	lane := b.before.Chain(name)
	if lane == nil || len(lane.Rules) == 0 {
		b.t.Errorf("%s leads to %s, which has no rules yet", frontend.Frontend(), name)
		return 0
	}
	b.binder(frontend, lane)
	slots, endpoints := slotsOf(b.before, lane)
	for i := range slots.Count {
		frontend.Slot = slots.First + i
		if s := b.after.Set(endpoints); s == nil || !hasKey(s, frontend) {
			b.t.Errorf("%s leads to slot %d of %s in %s, which is not there", frontend.Frontend(), frontend.Slot, name, endpoints)
		}
	}
	return 1
}

// binder checks that a lane that looks clients up finds how to bind them.
func (b *between) binder(frontend nft.Key, lane *nft.Chain) {
	b.t.Helper()
	v, _ := lane.Rules[0][0].(nft.Verdict)
	if v.Action != nft.Jump {
		return
	}
	timeouts := b.after.Set(nft.TimeoutsOf(bindingsOf(v.Chain)))
	if timeouts == nil || !hasKey(timeouts, frontend) {
		b.t.Errorf("%s leads to %s, and has no affinity", frontend.Frontend(), lane.Name)
		return
	}
	e, _ := timeouts.Find(frontend.Frontend())
	for _, o := range elements(b.after, nft.BindersMap) {
		if c := b.before.Chain(o.Value.Verdict.Chain); o.Key == nft.ClassKey(e.Value.Class) && c != nil && len(c.Rules) > 0 {
			return
		}
	}
	b.t.Errorf("no chain binds the clients of %s", frontend.Frontend())
}

// bindingsOf returns the map in which a chain looks up clients.
func bindingsOf(recall string) string {
	i := slices.IndexFunc(nft.AffinityMaps, func(name string) bool {
		return recall == nft.RecallChain(name, nft.OfPort) || recall == nft.RecallChain(name, nft.OfNode)
	})
	return nft.AffinityMaps[i]
}

// slotsOf returns the slots that a lane, or the plain lane behind a sticky one, chooses
// from, and the map that has them.
func slotsOf(t *nft.Table, lane *nft.Chain) (nft.Slots, string) {
	for _, s := range slices.Concat(lane.Rules...) {
		switch s := s.(type) {
		case nft.DNAT:
			slots, _ := s.Slots()
			return slots, s.Map
		case nft.Choose:
			return s.Slots, nft.EndpointsMap
		}
	}
	last := lane.Rules[len(lane.Rules)-1]
	next, _ := last[len(last)-1].(nft.Verdict)
	return slotsOf(t, t.Chain(next.Chain))
}

func hasKey(s *nft.Set, k nft.Key) bool {
	_, ok := slices.BinarySearchFunc(s.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	return ok
}
