package apply

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Settle returns desired with the endpoints of each frontend placed in the
// slots where current has them already. New endpoints take the slots of those
// that went away. Which slot an endpoint has means nothing, so both rulesets
// do the same; but a replaced endpoint then changes one element, where the
// order that render starts with would move many.
//
// Settling twice is settling once, and settling on an empty ruleset changes
// nothing. desired is not modified; the result shares its parts.
func Settle(current, desired *render.Ruleset) *render.Ruleset {
	out := &render.Ruleset{}
	for _, t := range desired.Tables {
		settled := *t
		settled.Sets = nil
		for _, s := range t.Sets {
			settled.Sets = append(settled.Sets, settleSet(findSet(current, t.Family, s), s))
		}
		out.Tables = append(out.Tables, &settled)
	}
	return out
}

// findSet returns the set of current that s will replace, or an empty one.
func findSet(current *render.Ruleset, f model.Family, s *render.Set) *render.Set {
	if t := current.Table(f); t != nil {
		if o := t.Set(s.Name); o != nil && o.Same(s) {
			return o
		}
	}
	return &render.Set{}
}

func settleSet(current, desired *render.Set) *render.Set {
	if !hasSlots(desired) || len(current.Elements) == 0 {
		return desired
	}
	out := *desired
	out.Elements = make([]render.Element, 0, len(desired.Elements))
	cur, want := current.Elements, desired.Elements
	for len(want) > 0 {
		var group, before []render.Element
		group, want = cutFrontend(want)
		for len(cur) > 0 && cur[0].Key.Frontend().Compare(group[0].Key.Frontend()) < 0 {
			_, cur = cutFrontend(cur)
		}
		if len(cur) > 0 && cur[0].Key.Frontend() == group[0].Key.Frontend() {
			before, cur = cutFrontend(cur)
		}
		out.Elements = appendSettled(out.Elements, before, group)
	}
	return &out
}

func hasSlots(s *render.Set) bool {
	return len(s.Key) > 0 && s.Key[len(s.Key)-1] == render.Slot
}

// cutFrontend splits off the elements of the first frontend.
func cutFrontend(elements []render.Element) (first, rest []render.Element) {
	f := elements[0].Key.Frontend()
	n := 1
	for n < len(elements) && elements[n].Key.Frontend() == f {
		n++
	}
	return elements[:n], elements[n:]
}

// appendSettled appends the elements of one frontend: those slots keep their
// endpoint that had one which is still wanted.
func appendSettled(out, before, group []render.Element) []render.Element {
	wanted := make(map[netip.AddrPort]int, len(group)) // how many slots it takes
	for _, e := range group {
		wanted[e.Value.Endpoint]++
	}
	keeps := make([]bool, len(group))
	for _, e := range before {
		if i := int(e.Key.Slot); i < len(group) && wanted[e.Value.Endpoint] > 0 {
			wanted[e.Value.Endpoint]--
			keeps[i] = true
		}
	}
	start := len(out)
	out = append(out, group...)
	for _, e := range before {
		if i := int(e.Key.Slot); i < len(group) && keeps[i] {
			out[start+i].Value = e.Value
		}
	}
	next := 0
	for _, e := range group {
		if wanted[e.Value.Endpoint] == 0 {
			continue
		}
		wanted[e.Value.Endpoint]--
		for keeps[next] {
			next++
		}
		out[start+next].Value = e.Value
		next++
	}
	return out
}
