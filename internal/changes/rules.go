package changes

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Rules compares two rulesets, of which p is the difference. Names of Services come
// from comments of elements, which nft limits to 128 bytes: longer ones are cut.
// The objects behind the rules after the change, if they are known, say why an endpoint
// is left out.
func Rules(before, after *nft.Ruleset, p *plan.Plan, objects *model.Snapshot) []Service {
	c := newComparison()
	if objects != nil {
		c.stateAfter = conditions(objects)
	}
	for _, f := range model.Families {
		was, is := newRules(before.Table(f)), newRules(after.Table(f))
		all := touched(f, p, was, is)
		if deletesTable(f, p) { // its elements are not listed
			was.each(func(f model.Frontend, _ model.ServiceName) { all[f] = struct{}{} })
		}
		for frontend := range all {
			c.add(pair{was.frontend(frontend), is.frontend(frontend)})
		}
		was.each(func(_ model.Frontend, name model.ServiceName) { c.count(name, 1, 0) })
		is.each(func(_ model.Frontend, name model.ServiceName) { c.count(name, 0, 1) })
	}
	return c.services()
}

func deletesTable(f model.Family, p *plan.Plan) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
		return c.Verb == plan.Delete && c.Family == f && c.Kind() == "table"
	})
}

// touched returns the frontends with a changed element. A range is found by its first port
// in the rules before and after the change, because its last one may differ.
func touched(f model.Family, p *plan.Plan, sides ...*rules) map[model.Frontend]struct{} {
	out := make(map[model.Frontend]struct{})
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Family != f || c.Kind() != "element" || !ofFrontend(c.Set) {
			continue
		}
		k := cmp.Or(c.New, c.Old).Key
		if !c.Set.HasRanges() {
			out[k.Frontend()] = struct{}{}
			continue
		}
		for _, r := range sides {
			if r != nil {
				out[r.FrontendOf(c.Set, k)] = struct{}{}
			}
		}
	}
	return out
}

// ofFrontend reports whether the keys of a set begin with a frontend.
func ofFrontend(s *nft.Set) bool {
	return len(s.Key) >= 3 && s.Key[0] == nft.Address && s.Key[1] == nft.InetProto && (s.Key[2] == nft.Port || s.HasRanges())
}

// rules is one table, with what its frontends share.
type rules struct {
	*nft.Table
	lanes           *plan.Lanes
	allowed, denied map[model.Frontend][]netip.Prefix
}

func newRules(t *nft.Table) *rules {
	if t == nil || t.Set(nft.ServicesMap) == nil { // none, or a foreign table of our name
		return nil
	}
	r := &rules{Table: t, lanes: plan.NewLanes(t), allowed: make(map[model.Frontend][]netip.Prefix), denied: make(map[model.Frontend][]netip.Prefix)}
	for _, s := range t.Sets {
		switch bits, denied, list := nft.ClientSet(s.Name); {
		case list && denied:
			r.addRanges(r.denied, s, bits)
		case list:
			r.addRanges(r.allowed, s, bits)
		case s.Name == nft.SourceRangesSet, s.Name == nft.RangePrefix+nft.SourceRangesSet:
			r.addRanges(r.allowed, s, 0)
		}
	}
	return r
}

// addRanges adds the ranges in a set by their frontends. They have the given length, unless
// the set has intervals.
func (r *rules) addRanges(to map[model.Frontend][]netip.Prefix, s *nft.Set, bits int) {
	for i := range s.Elements {
		k := s.Elements[i].Key
		if s.Interval {
			bits = int(k.Bits)
		}
		f := r.FrontendOf(s, k)
		to[f] = append(to[f], netip.PrefixFrom(k.Source, bits))
	}
}

// sources returns the clients that may connect to a frontend.
func (r *rules) sources(f model.Frontend) *model.Sources {
	_, limited := r.find(nft.SetFor(f, nft.FirewalledSet), f)
	_, lists := r.find(nft.SetFor(f, nft.AllowFrontendsSet), f)
	return model.NewSources(limited || lists, r.allowed[f], r.denied[f])
}

// each calls f with each frontend and its Service.
func (r *rules) each(f func(model.Frontend, model.ServiceName)) {
	if r == nil {
		return
	}
	for _, name := range nft.ServiceMaps {
		s := r.Set(name)
		if s == nil {
			continue
		}
		for i := range s.Elements {
			port, _ := nft.ParseComment(s.Elements[i].Comment)
			f(r.FrontendOf(s, s.Elements[i].Key), port.Service)
		}
	}
}

// frontend returns what the rules do with connections to a frontend, or nil.
func (r *rules) frontend(of model.Frontend) *frontend {
	if r == nil {
		return nil
	}
	services, locals := nft.MapsOf(of)
	e, ok := r.find(services, of)
	if !ok || r.FrontendOf(r.Set(services), e.Key) != of { // or another range
		return nil
	}
	f := &frontend{Frontend: of, sources: r.sources(of)}
	f.port, f.kind = nft.ParseComment(e.Comment)
	f.port.Protocol = of.Protocol
	inside := r.lane(services, e, of)
	outside := inside
	bindings := nft.AffinityMap
	if e, ok := r.find(locals, of); ok {
		outside = r.lane(locals, e, of)
		f.local, bindings = true, nft.LocalAffinityMap
	}
	f.inside, f.outside = inside.verdict, outside.verdict
	f.localUnknown = f.inside == model.Reject
	f.masquerading = r.masquerading(of)
	f.endpoints = r.endpoints(of, inside, outside)
	if inside.Count > 1 || outside.Count > 1 {
		f.scheduler = cmp.Or(inside.Scheduler, outside.Scheduler)
	}
	if f.scheduler.IsMaglev() {
		f.maglevSize = int(inside.Count)
	}
	f.affinity, _ = r.AffinityTimeout(bindings, of)
	f.limits = r.Limits(of)
	return f
}

func (r *rules) find(set string, f model.Frontend) (*nft.Element, bool) {
	s := r.Set(set)
	if s == nil {
		return nil, false
	}
	return s.Find(f)
}

func (r *rules) masquerading(f model.Frontend) model.Masquerading {
	if _, ok := r.find(nft.SetFor(f, nft.MasqFrontendsSet), f); ok {
		return model.MasqueradeAll
	}
	if _, ok := r.find(nft.SetFor(f, nft.LocalFrontendsSet), f); ok {
		return model.MasqueradeNode
	}
	return model.MasqueradeNone
}

// endpoints returns the endpoints in the slots of two lanes.
func (r *rules) endpoints(of model.Frontend, inside, outside lane) []endpoint {
	in := func(lanes ...lane) (out []endpoint) {
		for _, e := range r.Slots(of) {
			if slices.ContainsFunc(lanes, func(l lane) bool { return l.Has(e.Key.Slot) }) {
				out = append(out, endpoint{e.Value.Endpoint, 1})
			}
		}
		return count(out)
	}
	if !inside.Scheduler.IsMaglev() && !outside.Scheduler.IsMaglev() {
		return in(inside, outside)
	}
	out := ratios(in(inside)) // these are two tables
	for _, e := range ratios(in(outside)) {
		if !slices.ContainsFunc(out, func(o endpoint) bool { return o.address == e.address }) {
			out = append(out, e)
		}
	}
	return sortEndpoints(out)
}

// lane is what a class leads to.
type lane struct {
	nft.Slots
	verdict model.Verdict
}

func (r *rules) lane(set string, e *nft.Element, f model.Frontend) lane {
	if r.lanes.Drops(e) {
		return lane{verdict: model.Drop}
	}
	if slots, ok := r.lanes.Of(set, f); ok && slots.Count > 0 {
		return lane{slots, model.Forward}
	}
	return lane{verdict: model.Reject}
}

// count joins the slots of each endpoint to its weight.
func count(slots []endpoint) []endpoint {
	var out []endpoint
	for _, s := range sortEndpoints(slots) {
		if n := len(out) - 1; n >= 0 && out[n].address == s.address {
			out[n].weight++
			continue
		}
		out = append(out, s)
	}
	return out
}

// ratios estimates weights from numbers of slots in a table: all slots are taken, so the
// numbers of all endpoints change when one of them comes or goes.
func ratios(endpoints []endpoint) []endpoint {
	least := math.MaxInt
	for _, e := range endpoints {
		least = min(least, e.weight)
	}
	for i := range endpoints {
		e := &endpoints[i]
		e.weight = max(1, (4*e.weight+2*least+1)/(4*least+2)) // of least or one more: 1
	}
	return endpoints
}
