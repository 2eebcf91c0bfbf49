package render

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Render returns the ruleset for a routing. A family in which nothing is
// served has no table. The result is sorted and depends on nothing but the
// argument.
func Render(r *model.Routing) *nft.Ruleset {
	rs := &nft.Ruleset{}
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

func renderTable(r *model.Routing, f model.Family) *nft.Table {
	b := &builder{
		routing:  r,
		elements: make(map[string][]nft.Element),
		lanes:    make(map[laneUse]bool),
		affinity: make(map[affinity]bool),
	}
	b.reserve(f)
	composer := newComposer(r, len(r.Routes))
	var part fragment
	for i := range r.Routes {
		if route := &r.Routes[i]; model.FamilyOf(route.Frontend.Address) == f {
			composer.compose(route, &part)
			b.take(&part)
		}
	}
	for _, p := range r.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == f {
			b.add(nft.ServiceCIDRsSet, nft.Element{Key: nft.Key{Address: p.Addr(), Bits: uint8(p.Bits())}})
		}
	}
	for _, a := range r.NodePortAddresses {
		if model.FamilyOf(a) == f {
			b.add(nft.NodeAddressesSet, nft.Element{Key: nft.Key{Address: a}})
		}
	}
	return b.table(f)
}

// builder collects what frontends add to one table.
type builder struct {
	routing  *model.Routing
	elements map[string][]nft.Element // by the name of the set
	lanes    map[laneUse]bool
	affinity map[affinity]bool
}

// reserve makes room for what most elements are.
func (b *builder) reserve(f model.Family) {
	frontends, endpoints := 0, 0
	for i := range b.routing.Routes {
		if r := &b.routing.Routes[i]; model.FamilyOf(r.Frontend.Address) == f {
			frontends++
			endpoints += len(r.Inside().Endpoints)
		}
	}
	for _, set := range []string{nft.ServicesMap, nft.ClusterIPsSet} {
		b.elements[set] = make([]nft.Element, 0, frontends)
	}
	b.elements[nft.EndpointsMap] = make([]nft.Element, 0, endpoints)
}

func (b *builder) add(set string, e nft.Element) {
	b.elements[set] = append(b.elements[set], e)
}

// take adds what one frontend adds.
func (b *builder) take(f *fragment) {
	for i := range f.elements {
		b.add(f.elements[i].set, f.elements[i].Element)
	}
	for _, u := range f.lanes {
		b.lanes[u], b.lanes[u.plain()] = true, true
	}
	if f.affinity != (affinity{}) {
		b.affinity[f.affinity] = true
	}
}

// table puts the elements into the skeleton, sorted and without those that
// several frontends share, and adds the lanes in use.
func (b *builder) table(f model.Family) *nft.Table {
	t := skeleton(f, b.routing, slices.SortedFunc(maps.Keys(b.affinity), affinity.compare))
	for _, s := range t.Sets {
		s.Elements = b.elements[s.Name]
		s.Sort()
		s.Elements = slices.CompactFunc(s.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	}
	var chains []*nft.Chain
	for _, u := range slices.SortedFunc(maps.Keys(b.lanes), laneUse.compare) {
		chains = append(chains, u.chain())
	}
	t.Chains = slices.Concat(chains, t.Chains)
	return t
}
