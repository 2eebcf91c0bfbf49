package render

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// Kept is what the rules in the kernel serve of Services that are not known, or whose rules the kernel refuses.
type Kept struct {
	Frontends []KeptFrontend
	// NodePortAddresses serve frontends with the unspecified address, unless those of the routing do.
	NodePortAddresses []netip.Addr
}

// KeptFrontend is a frontend, or an address for echo requests. What depends on settings is in
// facts, and the rest in the elements of the kernel.
type KeptFrontend struct {
	model.Frontend
	Port    model.PortName // names lanes and limits; it may be cut
	Kind    model.Kind
	Comment string
	Inside  KeptShare
	Outside *KeptShare // of clients outside of the cluster, if the rules decide otherwise for them
	Limits  model.Limits
	// MasqueradeFrom are the addresses with which it masquerades in turn; none: as all others.
	MasqueradeFrom []netip.Addr
	// Observed reports that the connections of this frontend are logged, and not those of all.
	Observed bool
	Elements []KeptElement
	Hairpins []nft.Key // of its endpoints
}

// KeptShare is what the clients of a frontend get.
type KeptShare struct {
	Verdict  model.Verdict
	Relayed  bool
	Slots    nft.Slots     // of Forward, unless the connections are relayed
	Affinity time.Duration // zero: none
	Together bool          // the affinity is for all ports of a Balance
}

// KeptElement is an element that no setting changes.
type KeptElement struct {
	Set string
	nft.Element
}

// CanKeep reports whether elements of a set are the same with all settings, so that
// [KeptFrontend.Elements] has them. What else a frontend needs follows from the facts.
func CanKeep(set string) bool {
	row := nft.RowOf(set)
	switch id := nft.IDOf(set); {
	case set == nft.NodeAddressesSet || set == nft.ServiceCIDRsSet || set == nft.LoadBalancerCIDRsSet:
		return false
	case set == nft.ObservedSet || set == nft.SampledSet || set == nft.SampledConnectionsSet:
		return false
	case slices.ContainsFunc(nft.AffinityMaps, func(b string) bool { return set == nft.EndpointsOf(b) || set == nft.TimeoutsOf(b) }):
		return false
	case isOfLimits(id.Name), id.Name == nft.SNATFrontendsMap:
		return false
	}
	return row.Contents == nft.Endpoints || row.Name != "" && (row.Contents == nft.Facts || row.Contents == nft.Clients)
}

func isOfLimits(set string) bool {
	if set == nft.LimitedSet {
		return true
	}
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		if set == frontendsOf(kind) || set == nft.OverSet(kind) || kind.OfClients() && set == nft.FullSet(kind) {
			return true
		}
	}
	return nft.RowOf(set).Name == "clients-of-"
}

// StartKeeping is like [Start], and some frontends stay as the kernel serves them, with the
// optional parts that they need. Routes that ask for one of these are left out.
func StartKeeping(r *model.Routing, kept Kept) (*State, nft.Delta) {
	routing := *r
	routing.Revert(contestedChanges(&routing, kept.Frontends))
	if !r.Wildcards && slices.ContainsFunc(kept.Frontends, func(k KeptFrontend) bool { return k.Address.IsUnspecified() }) {
		routing.Wildcards, routing.NodePortAddresses = true, kept.NodePortAddresses
	}
	s := newState(&routing)
	for i := range kept.Frontends {
		k := &kept.Frontends[i]
		f := model.FamilyOf(k.Address)
		if k.IsEcho() && !routing.AnswerFrom[f].IsValid() {
			continue
		}
		part := new(fragment)
		s.composer.keepFrontend(k, part)
		s.tables[f].beside = true
		s.tables[f].kept = append(s.tables[f].kept, part)
	}
	return s, s.start(&routing)
}

// Without returns what is kept without the selected frontends that a routing has.
func (k Kept) Without(r *model.Routing, selects func(comment string) bool) Kept {
	var taken Claims
	for i := range r.Routes {
		taken.Add(r.Routes[i].Frontend, r.Routes[i].Kind)
	}
	for _, e := range r.Echoes {
		taken.Add(model.Echo(e.Frontend.Address), 0)
	}
	k.Frontends = slices.DeleteFunc(slices.Clone(k.Frontends), func(f KeptFrontend) bool {
		return taken.Has(f.Frontend, f.Kind) && selects(f.Comment)
	})
	return k
}

// Claims are frontends that others cannot have, too. A NodePort is one with all of its addresses.
type Claims struct {
	single map[model.Frontend]bool
	ranges map[netip.Addr][]model.Frontend
}

func onAllAddresses(f model.Frontend, kind model.Kind) model.Frontend {
	if kind == model.NodePort {
		return f.OnNode()
	}
	return f
}

// Add adds a frontend.
func (c *Claims) Add(f model.Frontend, kind model.Kind) {
	if c.single == nil {
		c.single, c.ranges = make(map[model.Frontend]bool), make(map[netip.Addr][]model.Frontend)
	}
	c.single[onAllAddresses(f, kind)] = true
	if f.IsRange() {
		c.ranges[f.Address] = append(c.ranges[f.Address], f)
	}
}

// Has reports whether a frontend is one of them, or a range that overlaps one.
func (c *Claims) Has(f model.Frontend, kind model.Kind) bool {
	return c.single[onAllAddresses(f, kind)] || f.IsRange() && slices.ContainsFunc(c.ranges[f.Address], f.Overlaps)
}

func contestedChanges(r *model.Routing, kept []KeptFrontend) (out []model.RouteChange) {
	var claims Claims
	for i := range kept {
		claims.Add(kept[i].Frontend, kept[i].Kind)
	}
	for i := range r.Routes {
		if f := r.Routes[i].Frontend; claims.Has(f, r.Routes[i].Kind) {
			out = append(out, model.RouteChange{Frontend: f})
		}
	}
	for _, e := range r.Echoes {
		if f := model.Echo(e.Frontend.Address); claims.Has(f, 0) {
			out = append(out, model.RouteChange{Frontend: f})
		}
	}
	return out
}

func (c *composer) keepFrontend(k *KeptFrontend, part *fragment) {
	c.part = part
	for _, e := range k.Elements {
		c.keepElement(k, e)
	}
	if k.IsEcho() {
		return
	}
	if k.IsRange() {
		c.addRange(k.Frontend)
	}
	key := nft.FrontendKey(k.Frontend)
	services, locals := nft.MapsOf(k.Frontend)
	c.add(services, nft.Element{Key: key, Value: c.keptValue(k, &k.Inside, false), Comment: k.Comment})
	if k.Outside != nil {
		c.add(locals, nft.Element{Key: key, Value: c.keptValue(k, k.Outside, true)})
	}
	c.addAddress(k.Frontend, k.Kind)
	c.addLimits(k.Port.Service, k.Frontend, k.Limits)
	if k.Inside.Relayed {
		return
	}
	c.masqueradeFrom(k.Frontend, k.MasqueradeFrom)
	c.addObserved(k.Frontend, k.Observed)
	for _, h := range k.Hairpins {
		c.add(nft.SetFor(k.Frontend, nft.HairpinSet), nft.Element{Key: h})
	}
}

func (c *composer) keepElement(k *KeptFrontend, e KeptElement) {
	c.add(e.Set, e.Element)
	o, ok := optionOf(e.Set)
	if !ok {
		return
	}
	c.useOption(o)
	if (o.kind == allowing || o.kind == denying) && k.Address.IsUnspecified() {
		c.useOption(option{kind: guardedNodePorts})
	}
}

func (c *composer) keptValue(k *KeptFrontend, s *KeptShare, outside bool) nft.Value {
	own := share{verdict: s.Verdict, relayed: s.Relayed, scheduler: s.Slots.Scheduler,
		slots: placement.Span{First: int(s.Slots.First), Count: int(s.Slots.Count)}}
	for _, e := range k.Elements {
		own.onePort = own.onePort || e.Set == nft.RangePortEndpointsMap
		if nft.RowOf(e.Set).Contents == nft.Endpoints && s.Slots.Has(e.Key.Slot) {
			own.bound = append(own.bound, e.Value.Endpoint)
		}
	}
	if s.Verdict == model.Forward && !s.Relayed && s.Affinity > 0 {
		own.affinity = nft.Affinity{Timeout: s.Affinity, Protocol: k.Protocol, Local: outside, Shared: s.Together, Shape: nft.ShapeOf(k.Frontend)}
		if s.Together {
			c.keepTogether(k)
		}
	}
	return c.shareValue(k.Frontend, k.Port, own)
}
