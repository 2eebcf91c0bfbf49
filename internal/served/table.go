package served

import (
	"cmp"
	"iter"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Table is one table of rules, as its frontends are read from it.
type Table struct {
	table           *nft.Table
	lanes           *plan.Lanes
	timeouts        map[model.Frontend]time.Duration
	allowed, denied map[model.Frontend][]netip.Prefix
}

// Read prepares a table for reading. It returns nil, which has no frontends, if there is
// no table, or a foreign one of our name. The cost grows with the clients in lists.
func Read(t *nft.Table) *Table {
	if t == nil || t.Set(nft.ServicesMap) == nil {
		return nil
	}
	r := &Table{
		table: t, lanes: plan.NewLanes(t), timeouts: t.AffinityTimeouts(),
		allowed: make(map[model.Frontend][]netip.Prefix), denied: make(map[model.Frontend][]netip.Prefix),
	}
	for _, s := range t.Sets {
		switch bits, denied, list := nft.ClientSet(s.Name); {
		case list && denied:
			r.addSources(r.denied, s, bits)
		case list:
			r.addSources(r.allowed, s, bits)
		case nft.IDOf(s.Name).Name == nft.SourceRangesSet:
			r.addSources(r.allowed, s, 0)
		}
	}
	return r
}

// addSources adds the ranges in a set by their frontends. They have the given length,
// unless the set has intervals.
func (t *Table) addSources(to map[model.Frontend][]netip.Prefix, s *nft.Set, bits int) {
	for i := range s.Elements {
		k := s.Elements[i].Key
		if s.Interval {
			bits = int(k.Bits)
		}
		f := t.table.FrontendOf(s, k)
		to[f] = append(to[f], netip.PrefixFrom(k.Source, bits))
	}
}

// Named is a frontend with its service port, whose name may be cut.
type Named struct {
	model.Frontend
	Port model.PortName
	Kind model.Kind
}

// NameOf returns the frontend of a route with its service port.
func NameOf(r *model.Route) Named { return Named{r.Frontend, r.PortName(), r.Kind} }

// Find returns the frontend that serves an address and port, by the rules of a table; false:
// none does. It costs a lookup, and not a reading of the table.
func Find(t *nft.Table, dialled model.Frontend) (n Named, ok bool) {
	f := t.Serving(dialled)
	e, ok := t.Set(nft.SetFor(f, nft.ServicesMap)).Find(f)
	if !ok {
		return n, false
	}
	return namedBy(f, e), true
}

// Names iterates over the frontends and their service ports, in the order of the maps.
func (t *Table) Names() iter.Seq[Named] {
	return func(yield func(Named) bool) {
		if t == nil {
			return
		}
		for _, name := range nft.ServiceMaps {
			s := t.table.Set(name)
			if s == nil {
				continue // no frontend is a range of ports
			}
			for i := range s.Elements {
				e := &s.Elements[i]
				if !yield(namedBy(t.table.FrontendOf(s, e.Key), e)) {
					return
				}
			}
		}
	}
}

// OnlyLoadBalancers returns the Services of a ruleset, and whether all their addresses are of load
// balancers, as of each Balance. Rules do not tell a Balance from a Service without a ClusterIP.
func OnlyLoadBalancers(rs *nft.Ruleset) map[model.ServiceName]bool {
	out := make(map[model.ServiceName]bool)
	if rs == nil {
		return out
	}
	for _, t := range rs.Tables {
		for n := range Read(t).Names() {
			before, known := out[n.Port.Service]
			out[n.Port.Service] = n.Kind == model.LoadBalancerIP && (before || !known)
		}
	}
	return out
}

// Words are the words for what a ruleset serves, as far as rules tell: if all addresses are of load
// balancers, as on a machine without Kubernetes, the ones of Balances.
func Words(rs *nft.Ruleset) words.Vocabulary {
	all := OnlyLoadBalancers(rs)
	for _, only := range all {
		if !only {
			return words.Kubernetes
		}
	}
	return words.Of(len(all) > 0)
}

// WordsAt are the words for what serves an address and port by the rules of a table, and the ones for
// the ruleset if nothing does.
func WordsAt(rs *nft.Ruleset, t *nft.Table, dialled model.Frontend) words.Vocabulary {
	if t != nil {
		if n, ok := Find(t, dialled); ok {
			return words.Of(OnlyLoadBalancers(rs)[n.Port.Service])
		}
	}
	return Words(rs)
}

// namedBy reads the comment of the element of a frontend.
func namedBy(f model.Frontend, e *nft.Element) Named {
	port, kind := nft.ParseComment(e.Comment)
	port.Protocol = f.Protocol
	return Named{f, port, kind}
}

// All iterates over the frontends in the order of the maps.
func (t *Table) All() iter.Seq[*Frontend] {
	return func(yield func(*Frontend) bool) {
		for n := range t.Names() {
			if !yield(t.Frontend(n.Frontend)) {
				return
			}
		}
	}
}

// Frontend returns how the rules serve a frontend, or nil if they do not.
func (t *Table) Frontend(of model.Frontend) *Frontend {
	if t == nil {
		return nil
	}
	services, locals := nft.MapsOf(of)
	e, ok := t.table.Set(services).Find(of)
	if !ok || t.table.FrontendOf(t.table.Set(services), e.Key) != of { // or another range
		return nil
	}
	f := &Frontend{Frontend: of, Affinity: t.timeouts[of], Masquerading: t.masqueradingOf(of), Sources: t.sourcesOf(of), Limits: t.table.Limits(of)}
	_, f.Together = t.table.AffinityTimeout(nft.SharedAffinityMap, of)
	name := namedBy(of, e)
	f.Port, f.Kind = name.Port, name.Kind
	f.Relayed = t.lanes.Relays(e)
	inside := t.laneOf(services, e, of)
	f.Inside = t.decisionIn(of, inside)
	f.Outside = f.Inside
	f.Scheduler = inside.schedulerOf()
	if e, ok := t.table.Set(locals).Find(of); ok {
		outside := t.laneOf(locals, e, of)
		f.Outside, f.ExternalPolicy = t.decisionIn(of, outside), model.PolicyLocal
		f.Scheduler = cmp.Or(f.Scheduler, outside.schedulerOf())
	}
	return f.Without(f.unknownFacts(len(e.Comment)))
}

// unknownFacts returns the facts that rules leave open about a frontend that was read otherwise.
func (f *Frontend) unknownFacts(comment int) (unknown Facts) {
	if comment >= nft.MaxComment {
		unknown |= Name
	}
	switch {
	case f.Kind != model.ClusterIP:
	case f.Inside.Verdict == model.Drop:
		f.InternalPolicy = model.PolicyLocal // nothing else drops
	default:
		unknown |= InternalPolicy
	}
	if f.Inside.Verdict == model.Reject {
		unknown |= ExternalPolicy
	}
	if f.Scheduler == model.DefaultScheduler {
		unknown |= Scheduler
	}
	if !f.Forwards() {
		unknown |= Affinity
	}
	return unknown
}

func (t *Table) masqueradingOf(f model.Frontend) model.Masquerading {
	if _, ok := t.table.Set(nft.SetFor(f, nft.MasqFrontendsSet)).Find(f); ok {
		return model.MasqueradeAll
	}
	if _, ok := t.table.Set(nft.SetFor(f, nft.LocalFrontendsSet)).Find(f); ok {
		return model.MasqueradeNode
	}
	return model.MasqueradeNone
}

func (t *Table) sourcesOf(f model.Frontend) *model.Sources {
	_, limited := t.table.Set(nft.SetFor(f, nft.FirewalledSet)).Find(f)
	_, listed := t.table.Set(nft.SetFor(f, nft.AllowFrontendsSet)).Find(f)
	return model.NewSources(limited || listed, t.allowed[f], t.denied[f])
}

type lane struct {
	nft.Slots
	verdict model.Verdict
}

func (t *Table) laneOf(set string, e *nft.Element, f model.Frontend) lane {
	if t.lanes.Drops(e) {
		return lane{verdict: model.Drop}
	}
	if slots, ok := t.lanes.Of(set, f); ok && slots.Count > 0 {
		return lane{slots, model.Forward}
	}
	return lane{verdict: model.Reject}
}

// schedulerOf returns DefaultScheduler if there is no choice.
func (l lane) schedulerOf() model.Scheduler {
	if l.Count > 1 {
		return l.Scheduler
	}
	return model.DefaultScheduler
}

func (t *Table) decisionIn(f model.Frontend, l lane) Decision {
	d := Decision{Verdict: l.verdict}
	if l.verdict != model.Forward {
		return d
	}
	for _, e := range t.table.Slots(f) {
		if l.Has(e.Key.Slot) {
			d.Endpoints = append(d.Endpoints, Endpoint{e.Value.Endpoint, 1})
		}
	}
	d.Endpoints = joinEndpoints(d.Endpoints)
	return d
}
