package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// reports are the notices of a router. Those about a Service are built again when it, or
// what its rivals have, has changed; a change of another Service does not visit them.
type reports struct {
	notices []Notice // all, sorted
	version uint64
	// services are those about Services and their conflicts, sorted, and by the Service.
	services []Notice
	by       map[ServiceName][]Notice
	changed  map[ServiceName]struct{} // of these, they may be others now
	stale    bool                     // the others are
}

// newReports returns reports that are built from nothing and follow others.
func newReports(before reports) reports {
	return reports{
		notices: before.notices, version: before.version, stale: true,
		by: make(map[ServiceName][]Notice), changed: make(map[ServiceName]struct{}),
	}
}

func (r *reports) markStale(name ServiceName) { r.changed[name] = struct{}{} }

// markNoticed notes that the notices about a Service may have changed, if there are any.
func (r *reports) markNoticed(name ServiceName) {
	if _, ok := r.by[name]; ok {
		r.markStale(name)
	}
}

// Notices returns the notices, sorted. The result must not be changed.
func (r *frontends) Notices() []Notice { return r.reports.notices }

// NoticesVersion returns a number that changes with the notices, initially 0.
func (r *frontends) NoticesVersion() uint64 { return r.reports.version }

// refreshReports builds stale notices again after some changes. Services that a frontend's change
// gives a notice are among the losers, or were noted when they joined as such.
func (r *Router) refreshReports(changes []RouteChange) {
	all := &r.reports
	for i := range changes {
		c := &changes[i]
		if c.Frontend.IsEcho() || sameClaimant(c.Old, c.New) {
			continue
		}
		for _, route := range [...]*Route{c.Old, c.New} {
			if route != nil && len(all.by) > 0 {
				all.markNoticed(route.Service.Name)
			}
		}
		if len(r.losers) == 0 && !c.Frontend.IsRange() { // the rule
			continue
		}
		for loser := range r.losersOf(c.Frontend) {
			all.markStale(loser.Service.Name)
		}
	}
	if !r.reportServices() && !all.stale {
		return
	}
	others := slices.Concat(r.base.notices, r.overlapNotices(), r.echoNotices())
	slices.SortFunc(others, Notice.compare)
	if now := mergeNotices(all.services, others); !slices.Equal(all.notices, now) {
		all.notices = now
		all.version++
	}
	all.stale = false
}

// sameClaimant reports whether notices name a frontend's route like another one. Both may be
// nil: a range of another one may keep this frontend from being served.
func sameClaimant(a, b *Route) bool {
	return a == b || a != nil && b != nil && a.PortName() == b.PortName() && a.Service.Balance == b.Service.Balance
}

// losersOf calls yield with the claims that may not be served because of a frontend.
func (r *frontends) losersOf(f Frontend) func(yield func(*Route) bool) {
	if !f.IsRange() {
		return r.losers[f].eachRoute
	}
	if c := r.ranges.claims[f.rangeAddress()]; c != nil {
		return c.all.eachOverlapping(f)
	}
	return func(func(*Route) bool) {}
}

// reportServices builds the notices of Services again that may have changed, and reports
// whether one has.
func (r *Router) reportServices() bool {
	all := &r.reports
	outdated := make(map[Object]bool)
	var added []Notice
	for name := range all.changed {
		before, now := all.by[name], r.noticesOf(name)
		if slices.Equal(before, now) {
			continue
		}
		for _, n := range slices.Concat(before, now) {
			outdated[n.Object] = true
		}
		added = append(added, now...)
		if all.by[name] = now; len(now) == 0 {
			delete(all.by, name)
		}
	}
	clear(all.changed)
	if len(outdated) == 0 {
		return false
	}
	slices.SortFunc(added, Notice.compare)
	kept := slices.DeleteFunc(slices.Clone(all.services), func(n Notice) bool { return outdated[n.Object] })
	all.services = mergeNotices(kept, added)
	return true
}

func (r *Router) noticesOf(name ServiceName) []Notice {
	s, ok := r.services[name]
	if !ok {
		return nil
	}
	out := slices.Concat(r.noticed[name], r.conflictNotices(s))
	slices.SortFunc(out, Notice.compare)
	return slices.Compact(out)
}

func mergeNotices(a, b []Notice) []Notice {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make([]Notice, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].compare(b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// lost are frontends of a Service that others have, of one address.
type lost struct {
	address netip.Addr
	ranges  bool // they are ranges of ports
	routes  []*Route
	winners []*Route // of each
}

// conflictNotices reports the frontends that other service ports have (4.39). Claims of one
// service port are harmless (4.41).
func (r *frontends) conflictNotices(s *routed) []Notice {
	var all []*lost
	at := make(map[Frontend]*lost)
	for i := range s.routes {
		route := &s.routes[i]
		winner := r.holderOf(route.Frontend)
		if winner == nil || winner.PortName() == route.PortName() {
			continue
		}
		key := Frontend{Address: route.Frontend.Address, Last: min(route.Frontend.Last, 1)}
		if at[key] == nil {
			at[key] = &lost{address: key.Address, ranges: key.Last > 0}
			all = append(all, at[key])
		}
		at[key].routes, at[key].winners = append(at[key].routes, route), append(at[key].winners, winner)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *lost) int { return cmp.Or(a.address.Compare(b.address), CompareBool(a.ranges, b.ranges)) })
	var out []Notice
	for _, l := range all[:min(len(all), budget.ConflictAddresses)] {
		out = append(out, l.conflictNotices()...)
	}
	if more := len(all) - budget.ConflictAddresses; more > 0 {
		out = append(out, newNotice(s.state.Service.Object(), Conflict, "frontends on %d more addresses are served by others, not by this one", more))
	}
	return out
}

// holderOf returns the route that a claim of a frontend loses to, or the one that has it.
func (r *frontends) holderOf(f Frontend) *Route {
	if !f.IsRange() {
		return r.Serves(f)
	}
	return r.servedRange(f)
}

// servedRange returns the served range that a frontend overlaps, the first one by claim, or nil.
func (r *frontends) servedRange(f Frontend) *Route {
	if c := r.ranges.claims[f.rangeAddress()]; c != nil {
		return c.firstServed(f)
	}
	return nil
}

func (l *lost) conflictNotices() (out []Notice) {
	loser := l.routes[0]
	if len(l.routes) > budget.Conflicts {
		text := "%d ports on %s%s are served by %s, not by this one"
		if l.ranges {
			text = "%d ranges of ports on %s%s are not served: they overlap ranges of %s"
		}
		return []Notice{newNotice(loser.Service.Object(), Conflict, text, len(l.routes), l.address, loser.Service.Words().Kind(loser.Kind.String()), l.nameWinners())}
	}
	for i, route := range l.routes {
		if f, winner := route.Frontend, l.winners[i]; !f.IsRange() {
			out = append(out, conflictNotice(f, route, winner))
		} else {
			out = append(out, newNotice(route.Service.Object(), Conflict, "%s%s is not served: it overlaps %s of %s",
				f, route.Service.Words().Kind(route.Kind.String()), winner.Frontend, winner.Service.Object()))
		}
	}
	return out
}

func (l *lost) nameWinners() string {
	objects := make([]string, len(l.winners))
	for i, winner := range l.winners {
		objects[i] = winner.Service.Object().String()
	}
	slices.Sort(objects)
	return listFew(slices.Compact(objects))
}

func conflictNotice(f Frontend, loser, winner *Route) Notice {
	of := " (" + loser.Kind.String() + ")"
	switch {
	case loser.Service.Balance: // has one kind, and no names of ports
		of = ""
	case f.IsRange(): // which its port is named after
	case loser.Port.Name != "":
		of = fmt.Sprintf(" (%s of port %q)", loser.Kind, loser.Port.Name)
	}
	return newNotice(loser.Service.Object(), Conflict, "%s%s is served by %s, not by this one", f, of, winner.Service.Object())
}
