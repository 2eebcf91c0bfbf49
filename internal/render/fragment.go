package render

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// fragment is the part of a table that one frontend needs.
type fragment struct {
	elements []member
	lanes    []laneUse
	options  []option // that the frontend uses
}

// member is an element and the name of the set that it is in.
type member struct {
	set string
	nft.Element
}

// laneUse is a lane of a frontend, or the chain that binds or limits its clients. It is
// comparable.
type laneUse struct {
	lane     lane
	bindings string       // the map in which the lane looks up the client first; empty: without affinity
	binds    nft.Affinity // of a chain that binds clients, which has nothing else; the zero value: a lane
	limits   clientLimit  // the same for one that limits clients
	relays   bool         // the same for the one that leads to the relay
	sources  sourcesUse   // the same for one that masquerades
}

func (u laneUse) compare(o laneUse) int {
	return cmp.Or(model.CompareBool(u.relays, o.relays), compareSources(u.sources, o.sources), u.limits.compare(o.limits), cmp.Compare(u.binds.Class(), o.binds.Class()), cmp.Compare(u.bindings, o.bindings), u.lane.compare(o.lane))
}

// composer makes fragments. They depend only on the route and on the configuration
// of the node.
type composer struct {
	node      string // name
	scheduler model.Scheduler
	observe   model.Observe
	balancers []netip.Prefix                 // of the configuration, sorted and without overlaps
	layouts   map[layoutKey]placement.Layout // of service ports: their frontends share them; nil: none
	part      *fragment                      // under construction
	memory    fragment                       // of the fragments of a change
	// other is the route of the same frontend on the other side of a change; nil: none.
	other *model.Route
	// exchange is what the change of the frontend replaces of its endpoints, if the others are left
	// out; comes means that the side after it is made.
	exchange *exchange
	comes    bool

	exchanges bool        // may be made
	pairs     []*exchange // of all changes under way; nil: all elements are made
	paired    map[exchangeKey]*exchange
}

// keptElements is the most elements of a frontend whose memory is kept for the next change,
// some ten kilobytes: as many as a Service of a hundred endpoints has.
const keptElements = 128

// keptPairs is the most changes of which the same is kept.
const keptPairs = 32

func (c *composer) reset() {
	c.layouts, c.part, c.other, c.exchange, c.paired = nil, nil, nil, nil, nil
	if clear(c.pairs); cap(c.pairs) > keptPairs {
		c.pairs = nil
	}
	if cap(c.memory.elements) > keptElements {
		c.memory.elements = make([]member, 0, usualElements)
	}
}

// layoutKey identifies a layout: the frontends of a service port share their choice, and
// so the layout.
type layoutKey struct {
	choice *model.Choice
	inside model.Policy
	local  bool // outside has a list of its own
	// What follows may change while the choice does not.
	scheduler  model.Scheduler // one of those with the same layout
	maglevSize uint32
}

func (c *composer) add(set string, e nft.Element) {
	c.part.elements = append(c.part.elements, member{set, e})
}

func (c *composer) useOption(o option) {
	if !slices.Contains(c.part.options, o) {
		c.part.options = append(c.part.options, o)
	}
}

func (c *composer) composeFragment(f model.Frontend, r *model.Route, part *fragment) {
	*part = fragment{part.elements[:0], part.lanes[:0], part.options[:0]}
	c.part = part
	switch {
	case f.IsEcho():
		c.addEcho(r)
		return
	case r.Frontend.OnLocalhost():
		return
	}
	inside, outside := r.Inside(), model.Decision{}
	if r.Local() {
		outside = r.Outside()
	}
	c.serve(r, inside, outside)
	c.addAddress(r.Frontend, r.Kind)
	c.addMasquerading(r)
	c.masqueradeFrom(r.Frontend, r.MasqueradeFrom())
	c.addSources(r)
	c.addLimits(r.Service.Name, r.Frontend, r.Service.Extra().Limits)
	if r.Relayed() {
		return
	}
	c.addObserved(r.Frontend, r.Service.Extra().Observe)
	c.addHairpins(r.Frontend, c.listedEndpoints(inside.Endpoints))
	c.addHairpins(r.Frontend, outside.Endpoints)
	c.addSelf(r.Frontend, inside.Endpoints, outside.Endpoints)
}

// addAddress lists the address of a frontend, whose other ports are refused.
func (c *composer) addAddress(f model.Frontend, kind model.Kind) {
	switch a := f.Address; {
	case kind == model.ClusterIP:
		c.add(nft.ClusterIPsSet, nft.Element{Key: nft.Key{Address: a}})
	case kind != model.NodePort && slices.ContainsFunc(c.balancers, func(p netip.Prefix) bool { return p.Contains(a) }):
		c.add(nft.LoadBalancerIPsSet, nft.Element{Key: nft.Key{Address: a}})
	}
}

// serve lists a frontend with what is done for its clients, and its endpoints in their slots.
func (c *composer) serve(r *model.Route, inside, outside model.Decision) {
	key, l := nft.FrontendKey(r.Frontend), c.layoutOf(r, inside.Endpoints, outside.Endpoints)
	services, locals, endpoints, onePort := nft.ServicesMap, nft.LocalServicesMap, nft.EndpointsMap, false
	if r.Frontend.IsRange() {
		c.addRange(r.Frontend)
		onePort = slices.ContainsFunc(slices.Concat(l.Slots, l.Own), func(e netip.AddrPort) bool { return e.Port() != 0 })
		services, locals, endpoints = nft.RangeServicesMap, nft.RangeLocalServicesMap, rangeEndpoints(onePort)
	}
	c.add(services, nft.Element{Key: key, Value: c.frontendValue(r, inside.Verdict, l, false, onePort), Comment: nft.Comment(r)})
	if r.Local() && inside.Verdict != model.Reject {
		c.add(locals, nft.Element{Key: key, Value: c.frontendValue(r, outside.Verdict, l, true, onePort)})
	}
	c.addSlots(endpoints, key, nft.FirstSlot, l.Slots)
	c.addSlots(endpoints, key, nft.OwnSlots, l.Own)
}

func (c *composer) addSlots(set string, key nft.Key, first uint32, endpoints []netip.AddrPort) {
	for i, e := range endpoints {
		key.Slot = first + uint32(i)
		c.add(set, nft.Element{Key: key, Value: nft.Value{Endpoint: e}})
	}
}

func (c *composer) layoutOf(r *model.Route, inside, outside []model.Endpoint) placement.Layout {
	if c.exchange != nil {
		return placement.Layout{Inside: placement.Span{First: nft.FirstSlot, Count: len(inside)}}
	}
	scheduler := c.schedulerOf(r)
	if r.Alone() {
		return c.newLayout(r, scheduler, inside, outside)
	}
	key := layoutKey{choice: r.Choice, inside: r.InsidePolicy(), local: r.Local(), scheduler: model.RoundRobin}
	switch {
	case scheduler.IsMaglev():
		key.scheduler, key.maglevSize = model.Maglev, r.Service.Extra().MaglevSize
	case scheduler == model.SourceHash:
		key.scheduler = scheduler
	}
	l, ok := c.layouts[key]
	if !ok {
		if c.layouts == nil {
			c.layouts = make(map[layoutKey]placement.Layout)
		}
		l = c.newLayout(r, scheduler, inside, outside)
		c.layouts[key] = l
	}
	return l
}

func (c *composer) newLayout(r *model.Route, scheduler model.Scheduler, inside, outside []model.Endpoint) placement.Layout {
	if scheduler.IsMaglev() {
		return placement.NewMaglev(r.Service, inside, outside)
	}
	return placement.New(c.node, r.PortName(), scheduler, inside, outside)
}

func (c *composer) schedulerOf(r *model.Route) model.Scheduler {
	return cmp.Or(r.Scheduler(), c.scheduler)
}

// frontendValue returns the value of a frontend for all clients, or for those outside of the cluster if they
// differ.
func (c *composer) frontendValue(r *model.Route, v model.Verdict, l placement.Layout, outside, onePort bool) nft.Value {
	s := share{verdict: v, relayed: r.Relayed(), scheduler: c.schedulerOf(r), slots: l.Inside, onePort: onePort}
	if outside {
		s.slots = l.Outside
	}
	if a := affinityOf(r, outside); v == model.Forward && !s.relayed && a != (nft.Affinity{}) {
		s.affinity, s.bound = a, c.boundEndpoints(l, s.slots)
		if a.Shared {
			c.bindTogether(r, s.bound)
		}
	}
	return c.shareValue(r.Frontend, r.PortName(), s)
}

// share is what some clients of a frontend get.
type share struct {
	verdict   model.Verdict
	relayed   bool
	scheduler model.Scheduler // of Forward, unless the connections are relayed, like the rest
	slots     placement.Span
	onePort   bool // the endpoints of a range have one port
	affinity  nft.Affinity
	bound     []netip.AddrPort // endpoints to which clients may be bound
}

// shareValue returns the class of a frontend, or the verdict of a range, and adds the lanes that it leads to. A
// range is named by its first port, so that one that grows stays in its lane.
func (c *composer) shareValue(f model.Frontend, port model.PortName, s share) nft.Value {
	if s.verdict != model.Forward {
		reason, class := model.NoEndpoints, refused
		if s.verdict == model.Drop {
			reason, class = model.NoLocalEndpoints, dropped
		}
		if f.IsRange() {
			return nft.Value{Verdict: refusalVerdict(c.observe, reason, nft.OfRange)}
		}
		return nft.Value{Class: class}
	}
	if s.relayed {
		c.useOption(option{kind: redirected})
		c.part.lanes = append(c.part.lanes, laneUse{relays: true})
		return nft.Value{Class: relayed}
	}
	if f.IsRange() {
		port.Port = strconv.Itoa(int(f.Port))
	}
	use := laneUse{lane: laneFor(port, s.scheduler, s.slots)}
	use.lane.shape, use.lane.onePort = nft.ShapeOf(f), s.onePort
	if s.affinity != (nft.Affinity{}) {
		use.bindings = s.affinity.Bindings()
		c.addAffinity(f, s.affinity, s.bound)
	}
	c.part.lanes = append(c.part.lanes, use)
	if other, ok := use.lane.withCommonCounter(); ok {
		c.part.lanes = append(c.part.lanes, laneUse{lane: other})
	}
	if f.IsRange() {
		return nft.Value{Verdict: nft.Verdict{Action: nft.Goto, Chain: use.chainName()}}
	}
	return nft.Value{Class: use.classOf()}
}

// addMasquerading lists frontends behind which the source is masqueraded, always or for
// connections of the node itself (table 4-A).
func (c *composer) addMasquerading(r *model.Route) {
	set := ""
	switch r.Masquerading() {
	case model.MasqueradeNone:
		return
	case model.MasqueradeNode:
		set = nft.LocalFrontendsSet
	case model.MasqueradeAll:
		set = nft.MasqFrontendsSet
	}
	c.add(nft.SetFor(r.Frontend, set), nft.Element{Key: nft.FrontendKey(r.Frontend)})
}

func (c *composer) addSelf(f model.Frontend, inside, outside []model.Endpoint) {
	isSelf := func(e model.Endpoint) bool {
		return e.Host.Address == f.Address && (e.Port == f.Port || f.IsRange())
	}
	if slices.ContainsFunc(inside, isSelf) || slices.ContainsFunc(outside, isSelf) {
		c.useOption(option{kind: self, shape: nft.ShapeOf(f).InSets()})
		c.add(nft.SetFor(f, nft.SelfFrontendsSet), nft.Element{Key: nft.FrontendKey(f)})
	}
}

// mayCallItself reports whether an endpoint may connect to itself through a frontend of a
// node: one on this node (4.19), or without a node, which on a machine without Kubernetes are all.
func mayCallItself(node string, e model.Endpoint) bool {
	on := e.Host.Place.Node()
	return on == "" || on == node
}

// addHairpins lists the endpoints that may connect to themselves through a frontend. Endpoints
// of a range may do so with all ports.
func (c *composer) addHairpins(f model.Frontend, endpoints []model.Endpoint) {
	for _, e := range endpoints {
		if mayCallItself(c.node, e) {
			a := e.Host.Address
			key := nft.Key{Source: a, Address: a, Protocol: f.Protocol}
			if !f.IsRange() {
				key.Port = e.Port
			}
			c.add(nft.SetFor(f, nft.HairpinSet), nft.Element{Key: key})
		}
	}
}
