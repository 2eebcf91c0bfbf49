package served

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Keeping is what a ruleset serves of some Services, for rules with other Services or settings
// that serve these as before. The names are as the comments of elements have them.
type Keeping struct {
	render.Kept
	Services []model.ServiceName // sorted
	// Lost has the Services that are not served as before, and why: a frontend that rules of this version
	// cannot express is not kept.
	Lost map[model.ServiceName]string
	// Relayed are those whose connections the process relays, as their source says.
	Relayed map[model.ServiceName]bool
}

// Keep reads the frontends whose comments are selected.
func Keep(held *nft.Ruleset, selects func(comment string) bool) *Keeping {
	out := &Keeping{Lost: make(map[model.ServiceName]string), Relayed: make(map[model.ServiceName]bool)}
	services := make(map[model.ServiceName]bool)
	for _, t := range held.Tables {
		if !hasRules(t) {
			continue
		}
		k := newKeeper(t)
		for _, f := range k.selectFrontends(selects) {
			name := f.Port.Service
			if why := k.read(f); why != "" {
				out.Lost[name] = why
				continue
			}
			if f.Inside.Relayed || f.Outside != nil && f.Outside.Relayed {
				out.Relayed[name] = true
			}
			services[name] = true
			out.Frontends = append(out.Frontends, *f)
		}
		for _, e := range elementsIn(t, nft.NodeAddressesSet) {
			out.NodePortAddresses = append(out.NodePortAddresses, e.Key.Address)
		}
	}
	out.Services = slices.SortedFunc(maps.Keys(services), model.ServiceName.Compare)
	return out
}

// hasRules reports whether packets see the rules of a table. They do not after a load that was cut
// off, which may have left parts of Services.
func hasRules(t *nft.Table) bool {
	return t.Set(nft.ServicesMap) != nil && slices.ContainsFunc(t.Chains, func(c *nft.Chain) bool { return c.Hook != nft.NoHook })
}

type keeper struct {
	table *nft.Table
	lanes *plan.Lanes
	// elements are the ones that no setting changes, and foreign the sets with elements that
	// rules of this version do not have, by their frontends.
	elements map[model.FrontendID][]render.KeptElement
	foreign  map[model.FrontendID]string
	echoes   map[netip.Addr][]render.KeptElement
	all      bool // connections of all frontends are observed
}

func newKeeper(t *nft.Table) *keeper {
	k := &keeper{
		table: t, lanes: plan.NewLanes(t), elements: make(map[model.FrontendID][]render.KeptElement),
		foreign: make(map[model.FrontendID]string), echoes: make(map[netip.Addr][]render.KeptElement),
		// Samples are noted for a second message, unless each connection has one.
		all: t.Set(nft.SampledSet) != nil && t.Set(nft.SampledConnectionsSet) == nil,
	}
	for _, s := range t.Sets {
		k.add(s)
	}
	return k
}

// add adds the elements of a set.
func (k *keeper) add(s *nft.Set) {
	known := nft.RowOf(s.Name).Name != "" || k.table.FormerAffinity(s.Name)
	keeps, same := render.CanKeep(s.Name), sameLayout(s)
	for i := range s.Elements {
		e := &s.Elements[i]
		f := s.FrontendID(e.Key)
		switch {
		case !e.Key.Address.IsValid() || s.Dynamic:
		case !known || keeps && !same:
			k.foreign[f] = s.Name
		case keeps && f.Protocol == 0:
			k.echoes[f.Address] = append(k.echoes[f.Address], render.KeptElement{Set: s.Name, Element: *e})
		case keeps:
			k.elements[f] = append(k.elements[f], render.KeptElement{Set: s.Name, Element: *e})
		}
	}
}

func sameLayout(s *nft.Set) bool {
	now := nft.Declare(s.Name)
	return slices.Equal(s.Key, now.Key) && slices.Equal(s.Data, now.Data) && s.Interval == now.Interval
}

// selectFrontends returns the frontends, and the addresses for echo requests, that are selected, by
// their names alone.
func (k *keeper) selectFrontends(selects func(string) bool) (out []*render.KeptFrontend) {
	add := func(f model.Frontend, e *nft.Element) {
		if e.Comment != "" && selects(e.Comment) {
			n := namedBy(f, e)
			out = append(out, &render.KeptFrontend{Frontend: f, Port: n.Port, Kind: n.Kind, Comment: e.Comment})
		}
	}
	for _, name := range nft.ServiceMaps {
		s := cmp.Or(k.table.Set(name), new(nft.Set))
		for i := range s.Elements {
			add(k.table.FrontendOf(s, s.Elements[i].Key), &s.Elements[i])
		}
	}
	for i, e := range elementsIn(k.table, nft.EchoSet) {
		add(model.Echo(e.Key.Address), &k.table.Set(nft.EchoSet).Elements[i])
	}
	return out
}

func elementsIn(t *nft.Table, set string) []nft.Element {
	return cmp.Or(t.Set(set), new(nft.Set)).Elements
}

// read completes a frontend, or returns why it cannot be kept.
func (k *keeper) read(f *render.KeptFrontend) (lost string) {
	if f.IsEcho() {
		f.Elements = k.echoes[f.Address]
		return ""
	}
	services, locals := nft.MapsOf(f.Frontend)
	id := model.FrontendID{Address: f.Address, Protocol: f.Protocol, Port: f.Frontend.Port, Range: services == nft.RangeServicesMap}
	if set := k.foreign[id]; set != "" {
		return fmt.Sprintf("the set %s of its rules has another layout than this version's", set)
	}
	f.Elements, f.Limits = k.elements[id], k.table.Limits(f.Frontend)
	f.MasqueradeFrom = k.table.MasqueradeFrom(f.Frontend)
	var lostInside, lostOutside string
	f.Inside, lostInside = k.keptShare(services, f.Frontend, nft.AffinityMap)
	if _, ok := k.table.Set(locals).Find(f.Frontend); ok {
		f.Outside = new(render.KeptShare)
		*f.Outside, lostOutside = k.keptShare(locals, f.Frontend, nft.LocalAffinityMap)
	}
	f.Observed = !k.all && k.isObserved(f.Frontend)
	f.Hairpins = k.keptHairpins(f)
	return cmp.Or(lostInside, lostOutside)
}

// keptShare returns what the clients of a map get of a frontend.
func (k *keeper) keptShare(set string, f model.Frontend, bindings string) (s render.KeptShare, lost string) {
	e, _ := k.table.Set(set).Find(f)
	rejects, refuses := cmp.Or(e.Value.Verdict, k.lanes.Verdict(e.Value.Class)).Refuses()
	slots, _ := k.lanes.Of(set, f)
	switch {
	case rejects:
		s.Verdict = model.Reject
	case refuses:
		s.Verdict = model.Drop
	case k.lanes.Relays(e):
		s.Verdict, s.Relayed = model.Forward, true
	case slots.Count == 0:
		return s, fmt.Sprintf("this version cannot read where its rules lead in the map %s", set)
	default:
		s.Verdict, s.Slots = model.Forward, slots
		if !f.IsRange() {
			s.Affinity, _ = k.table.AffinityTimeout(bindings, f)
			if shared, ok := k.table.AffinityTimeout(nft.SharedAffinityMap, f); ok {
				s.Affinity, s.Together = shared, true
			}
		}
	}
	return s, ""
}

func (k *keeper) isObserved(f model.Frontend) bool {
	set, key := nft.ObservedSet, f
	if f.IsRange() {
		set, key = nft.ObservedAddressesSet, model.Frontend{Address: f.Address}
	}
	_, ok := k.table.Set(set).Find(key)
	return ok
}

func (k *keeper) keptHairpins(f *render.KeptFrontend) (out []nft.Key) {
	s := k.table.Set(nft.SetFor(f.Frontend, nft.HairpinSet))
	if s == nil {
		return nil
	}
	seen := make(map[nft.Key]bool)
	for i := range f.Elements {
		if nft.RowOf(f.Elements[i].Set).Contents != nft.Endpoints {
			continue
		}
		e := f.Elements[i].Value.Endpoint
		key := nft.Key{Source: e.Addr(), Address: e.Addr(), Protocol: f.Protocol}
		if !f.IsRange() {
			key.Port = e.Port()
		}
		if _, has := slices.BinarySearchFunc(s.Elements, key, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) }); has && !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}
