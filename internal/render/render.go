package render

import (
	"net/netip"
	"slices"

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
	b := newBuilder(r, f)
	for i := range r.Routes {
		if route := &r.Routes[i]; model.FamilyOf(route.Frontend.Address) == f {
			b.route(route)
		}
	}
	for _, a := range r.ClusterIPs {
		if model.FamilyOf(a) == f {
			b.add("cluster-ips", Element{Key: Key{Address: a}})
		}
	}
	for _, p := range r.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			b.add("service-cidrs", Element{Key: Key{Address: p.Addr(), Bits: uint8(p.Bits())}})
		}
	}
	return b.finish()
}

// builder collects the elements of one table.
type builder struct {
	node  string
	table *Table
	sets  map[string]*Set
	lanes map[string]int                       // lane to its number of slots
	order map[*model.Endpoint][]netip.AddrPort // by the first endpoint of a choice
}

func newBuilder(r *model.Routing, f model.Family) *builder {
	t := skeleton(f, r.ClusterCIDRs)
	b := &builder{
		node:  r.NodeName,
		table: t,
		sets:  make(map[string]*Set),
		lanes: make(map[string]int),
		order: make(map[*model.Endpoint][]netip.AddrPort),
	}
	for _, s := range t.Sets {
		b.sets[s.Name] = s
	}
	return b
}

func (b *builder) add(set string, e Element) {
	s := b.sets[set]
	s.Elements = append(s.Elements, e)
}

// route adds the elements of one frontend.
func (b *builder) route(r *model.Route) {
	key := Key{Address: r.Frontend.Address, Protocol: r.Frontend.Protocol, Port: r.Frontend.Port}
	verdict := b.verdict(r, key)
	b.add("services", Element{Key: key, Value: Value{Verdict: verdict}, Comment: Comment(r)})
	if r.Kind != model.ClusterIP {
		b.add("masq-frontends", Element{Key: key})
	}
}

// verdict returns what the services map says for a frontend and adds the
// endpoints behind it.
func (b *builder) verdict(r *model.Route, key Key) Verdict {
	d := r.Decision()
	switch d.Verdict {
	case model.Reject:
		return Verdict{Goto, "refuse"}
	case model.Drop:
		return Verdict{Action: Drop}
	}
	n := len(d.Endpoints)
	name := lane(r.Port, n)
	b.lanes[name] = n
	for i, e := range b.slots(r.Port, d) {
		key.Slot = uint32(i)
		b.add("endpoints", Element{Key: key, Value: Value{Endpoint: e}})
	}
	b.hairpins(r.Frontend.Protocol, d.Endpoints)
	return Verdict{Goto, name}
}

// slots returns the endpoints of a decision in the order of their slots. The
// frontends of a service port share the list of endpoints, and so its order.
func (b *builder) slots(port model.PortName, d model.Decision) []netip.AddrPort {
	first := &d.Endpoints[0]
	if b.order[first] == nil {
		b.order[first] = slots(b.node, port, d.Addresses())
	}
	return b.order[first]
}

// hairpins lists the endpoints that may meet themselves behind a frontend:
// those of this node (4.19) and those of which no node is known, because on a
// machine without Kubernetes that is every one.
func (b *builder) hairpins(p model.Protocol, endpoints []model.Endpoint) {
	for _, e := range endpoints {
		if e.Host.Node == "" || e.Host.Node == b.node {
			a := e.Address.Addr()
			b.add("hairpin", Element{Key: Key{Source: a, Address: a, Protocol: p, Port: e.Address.Port()}})
		}
	}
}

// finish sorts the elements, removes those that several frontends share, and
// adds the lanes in use.
func (b *builder) finish() *Table {
	for _, s := range b.table.Sets {
		s.Sort()
		s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return a.Key == b.Key })
	}
	var lanes []*Chain
	for name, n := range b.lanes {
		lanes = append(lanes, laneChain(name, n))
	}
	slices.SortFunc(lanes, compareLanes)
	b.table.Chains = slices.Concat(lanes, b.table.Chains)
	return b.table
}
