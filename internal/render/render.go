package render

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Render returns the ruleset for a routing. A family in which nothing is
// served has no table. The result is sorted and depends on nothing but the
// argument.
func Render(r *model.Routing) *Ruleset {
	rs := &Ruleset{}
	for _, f := range model.Families {
		if serves(r, f) {
			rs.Tables = append(rs.Tables, renderTable(r, f))
		}
	}
	return rs
}

func serves(r *model.Routing, f model.Family) bool {
	return slices.ContainsFunc(r.ClusterIPs, func(a netip.Addr) bool { return model.FamilyOf(a) == f }) ||
		slices.ContainsFunc(r.ServiceCIDRs, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
}

func renderTable(r *model.Routing, f model.Family) *Table {
	b := &builder{
		routing:  r,
		elements: make(map[string][]Element),
		lanes:    make(map[lane]bool),
		timeouts: make(map[time.Duration]bool),
		layouts:  make(map[layoutKey]layout),
	}
	for i := range r.Routes {
		if route := &r.Routes[i]; model.FamilyOf(route.Frontend.Address) == f {
			b.route(route)
		}
	}
	for _, a := range r.ClusterIPs {
		if model.FamilyOf(a) == f {
			b.add(ClusterIPsSet, Element{Key: Key{Address: a}})
		}
	}
	for _, p := range r.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			b.add(ServiceCIDRsSet, Element{Key: Key{Address: p.Addr(), Bits: uint8(p.Bits())}})
		}
	}
	return b.table(f)
}

// builder collects what services add to one table.
type builder struct {
	routing  *model.Routing
	elements map[string][]Element   // by the name of the set
	lanes    map[lane]bool          // in use; true: also by services with affinity
	timeouts map[time.Duration]bool // of affinity
	layouts  map[layoutKey]layout
}

// layoutKey identifies the lists of endpoints of a layout by their first
// elements: the frontends of a service port share the lists, and so the layout.
type layoutKey struct{ inside, outside *model.Endpoint }

func first(endpoints []model.Endpoint) *model.Endpoint {
	if len(endpoints) == 0 {
		return nil
	}
	return &endpoints[0]
}

func (b *builder) add(set string, e Element) {
	b.elements[set] = append(b.elements[set], e)
}

func frontendKey(f model.Frontend) Key {
	return Key{Address: f.Address, Protocol: f.Protocol, Port: f.Port}
}

// route adds the elements of one frontend.
func (b *builder) route(r *model.Route) {
	key := frontendKey(r.Frontend)
	inside, outside := r.Inside(), model.Decision{}
	if r.Local() {
		outside = r.Outside()
	}
	l := b.layout(r.Port, inside.Endpoints, outside.Endpoints)
	verdict := b.verdict(r, inside.Verdict, l.inside)
	b.add(ServicesMap, Element{Key: key, Value: Value{Verdict: verdict}, Comment: Comment(r)})
	if r.Local() && inside.Verdict != model.Reject {
		b.add(LocalServicesMap, Element{Key: key, Value: Value{Verdict: b.verdict(r, outside.Verdict, l.outside)}})
	}
	for i, e := range l.slots {
		key.Slot = uint32(i)
		b.add(EndpointsMap, Element{Key: key, Value: Value{Endpoint: e}})
	}
	b.masquerading(r)
	b.sourceRanges(r)
	b.hairpins(r.Frontend.Protocol, inside.Endpoints)
	b.hairpins(r.Frontend.Protocol, outside.Endpoints)
}

func (b *builder) layout(port model.PortName, inside, outside []model.Endpoint) layout {
	key := layoutKey{first(inside), first(outside)}
	l, ok := b.layouts[key]
	if !ok {
		l = newLayout(b.routing.NodeName, port, inside, outside)
		b.layouts[key] = l
	}
	return l
}

// verdict returns what a services map says for a frontend.
func (b *builder) verdict(r *model.Route, v model.Verdict, s span) Verdict {
	switch v {
	case model.Reject:
		return Verdict{Goto, refuseChain}
	case model.Drop:
		return Verdict{Action: Drop}
	}
	lane := laneFor(r.Port, cmp.Or(r.Service.Scheduler, b.routing.Scheduler), s)
	timeout := r.Service.AffinityTimeout
	b.lanes[lane] = b.lanes[lane] || timeout > 0
	if timeout == 0 {
		return Verdict{Goto, lane.name()}
	}
	b.timeouts[timeout] = true
	b.add(affinitySet(timeout), Element{Key: frontendKey(r.Frontend)})
	return Verdict{Goto, lane.stickyName()}
}

// masquerading lists frontends at which the source is masqueraded, always or
// for connections of the node itself (table 4-A).
func (b *builder) masquerading(r *model.Route) {
	switch {
	case r.Kind == model.ClusterIP:
	case r.Local():
		b.add(LocalFrontendsSet, Element{Key: frontendKey(r.Frontend)})
	default:
		b.add(MasqFrontendsSet, Element{Key: frontendKey(r.Frontend)})
	}
}

func (b *builder) sourceRanges(r *model.Route) {
	key := frontendKey(r.Frontend)
	if len(r.SourceRanges) > 0 {
		b.add(FirewalledSet, Element{Key: key})
	}
	for _, p := range r.SourceRanges {
		key.Source, key.Bits = p.Addr(), uint8(p.Bits())
		b.add(SourceRangesSet, Element{Key: key})
	}
}

// hairpins lists the endpoints that may meet themselves behind a frontend:
// those of this node (4.19) and those of which no node is known, because on a
// machine without Kubernetes that is every one.
func (b *builder) hairpins(p model.Protocol, endpoints []model.Endpoint) {
	for _, e := range endpoints {
		if e.Host.Node == "" || e.Host.Node == b.routing.NodeName {
			a := e.Address.Addr()
			b.add(HairpinSet, Element{Key: Key{Source: a, Address: a, Protocol: p, Port: e.Address.Port()}})
		}
	}
}

// table puts the elements into the skeleton, sorted and without those that
// several frontends share, and adds the lanes in use.
func (b *builder) table(f model.Family) *Table {
	t := skeleton(f, b.routing, slices.Sorted(maps.Keys(b.timeouts)))
	for _, s := range t.Sets {
		s.Elements = b.elements[s.Name]
		s.Sort()
		s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return a.Key == b.Key })
	}
	lanes := slices.SortedFunc(maps.Keys(b.lanes), lane.compare)
	var chains []*Chain
	for _, l := range lanes {
		chains = append(chains, l.chain())
	}
	for _, l := range lanes {
		if b.lanes[l] {
			chains = append(chains, l.stickyChain())
		}
	}
	t.Chains = slices.Concat(chains, t.Chains)
	return t
}
