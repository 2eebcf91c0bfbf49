package model

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// base holds the inputs that the routes of all Services depend on.
type base struct {
	config       Config
	node         *Node // of the source, or with its name only
	locality     *Locality
	serviceCIDRs []netip.Prefix
	// loadBalancerCIDRs are the configured ranges, as [MergePrefixes] returns them.
	loadBalancerCIDRs []netip.Prefix
	unlinkedCIDRs     []netip.Prefix        // see [Routing]
	answerFrom        map[Family]netip.Addr // see the function; empty: echo requests are not answered
	masqueradeFrom    map[Family][]netip.Addr
	notices           []Notice       // about the node
	nodes             []*Node        // of the source
	cidrs             []netip.Prefix // likewise
}

func newBase(c Config, nodes []*Node, cidrs []netip.Prefix) base {
	node, known := (&Snapshot{Nodes: nodes}).Node(c.NodeName)
	b := base{config: c, node: node, locality: NewLocality(node, c), serviceCIDRs: MergePrefixes(cidrs),
		loadBalancerCIDRs: MergePrefixes(c.LoadBalancerCIDRs), nodes: slices.Clone(nodes), cidrs: slices.Clone(cidrs)}
	for _, p := range b.loadBalancerCIDRs {
		b.unlinkedCIDRs = append(b.unlinkedCIDRs, Outside(p, c.Links)...)
	}
	b.answerFrom, b.masqueradeFrom = answerFrom(b.locality.Node, c), c.masqueradeFrom(b.locality.Node)
	if c.BesideAnother {
		b.serviceCIDRs = nil
	}
	if !known && len(nodes) > 0 {
		b.notices = []Notice{newNotice(Object{Kind: "Node", Name: c.NodeName}, NodeUnknown,
			"not among the nodes given (%s): no endpoint counts as local; name this node with --hostname-override", namesOf(nodes))}
	}
	return b
}

// masqueradeFrom returns the addresses that the node has, or all if its addresses are not known.
func (c *Config) masqueradeFrom(node *Node) map[Family][]netip.Addr {
	if !c.Masquerades() {
		return nil
	}
	out := make(map[Family][]netip.Addr)
	for _, a := range c.MasqueradeAddresses(node) {
		if own, f := c.InterfaceAddresses, FamilyOf(a); len(own) == 0 || slices.Contains(own, a) {
			out[f] = append(out[f], a)
		}
	}
	return out
}

func (c *Config) Masquerades() bool { return c.MasqueradePrimary || len(c.MasqueradeFrom) > 0 }

// MasqueradeAddresses returns the addresses to masquerade from, whether the node has them or not. The
// Node may be nil.
func (c *Config) MasqueradeAddresses(node *Node) (out []netip.Addr) {
	if c.MasqueradePrimary {
		node = c.nodeBoundTo(cmp.Or(node, new(Node)))
		for _, f := range Families {
			if a, ok := node.primaryAddress(f); ok {
				out = append(out, a)
			}
		}
	}
	for _, a := range c.MasqueradeFrom {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// isOf reports whether this is the base for these arguments of [newBase]. It compares
// Nodes by pointers: they do not change.
func (b *base) isOf(c *Config, nodes []*Node, cidrs []netip.Prefix) bool {
	return slices.Equal(b.nodes, nodes) && slices.Equal(b.cidrs, cidrs) && reflect.DeepEqual(&b.config, c)
}

func namesOf(nodes []*Node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return listFew(names)
}

// commonPart returns the part of the base on which all routes depend. That excludes
// addresses of interfaces, on which only NodePorts and ranges of ports depend; of their
// networks, it has what they leave of the ranges.
func (b base) commonPart() base {
	node, own := *b.node, *b.locality.Node
	node.Leaving, own.Leaving = false, false
	b.config.InterfaceAddresses, b.config.Links, b.nodes, b.cidrs = nil, nil, nil, nil
	b.node, b.locality = &node, &Locality{Node: &own}
	return b
}

// Configure sets the configuration, the Nodes and the ServiceCIDRs, which must not be
// modified afterwards. Differences
// without effect, such as the order, other Nodes or addresses without NodePorts,
// change nothing. Different NodePort addresses may change some frontends, each of
// which is returned once and in no order; see also [Router.NodePortAddresses]. After
// any other difference all routes are computed again and returned, and base is true:
// the rules that all frontends share change, too.
func (r *Router) Configure(c Config, nodes []*Node, cidrs []netip.Prefix) (changes []RouteChange, base bool) {
	if r.base.isOf(&c, nodes, cidrs) { // the rule, when a Service changes
		return nil, false
	}
	before := r.base
	r.base = newBase(c, nodes, cidrs)
	if !reflect.DeepEqual(before.commonPart(), r.base.commonPart()) {
		return r.rebuildRoutes(), true
	}
	touched := make(map[Frontend]*Route)
	if was, now := before.locality.NodePortAddresses, r.base.locality.NodePortAddresses; !slices.Equal(was, now) {
		r.reports.stale = r.reports.stale || len(r.overlaps) > 0
		r.touchOverlaps(was, now, touched)
	}
	affected := r.ranges.servicesOn(before.locality.own, r.base.locality.own)
	if !slices.Equal(before.locality.nodePorts, r.base.locality.nodePorts) {
		r.addNodePorts(affected)
	}
	return r.decideServicesAgain(affected, touched), false
}

func (r *Router) rebuildRoutes() []RouteChange {
	services, touched := r.services, r.winners
	for f := range r.yielding {
		delete(touched, f)
	}
	for a, route := range r.echoes.winners {
		touched[Echo(a)] = route
	}
	r.services = make(map[ServiceName]*routed, len(services))
	r.noticed = make(map[ServiceName][]Notice)
	r.health = make(map[ServiceName]HealthCheck)
	r.reports, r.staleHealth = newReports(r.reports), true
	r.contests = newContests[Frontend](byClaim, len(r.winners))
	r.yielding = make(map[Frontend]struct{})
	r.overlaps, r.ranges, r.clientLimits, r.slots = make(overlaps), ranges{make(map[rangeAddress]*rangeClaims), make(map[rangeAddress]struct{}), make(map[netip.Addr]map[ServiceName]struct{})}, newAllotment(budget.ClientLimits), newAllotment(budget.MaglevSlotsNode)
	r.echoes, r.unanswered = newContests[netip.Addr](byEcho, 0), make(map[Family]int)
	r.withoutLocal, r.balances, r.namespaces = make(map[Family]WithoutLocal), 0, make(map[string]int)
	states := make(map[ServiceName]ServiceState, len(services))
	for name, s := range services {
		states[name] = s.state
	}
	all := r.decideAll(states)
	for i := range all {
		r.set(&all[i], touched)
	}
	return r.settleAll(touched)
}

func (r *registry) addNodePorts(to map[ServiceName]struct{}) {
	for name, s := range r.services {
		if s.state.Service.hasNodePorts() {
			to[name] = struct{}{}
		}
	}
}

// decideServicesAgain computes the routes of some Services again after a change of addresses of the
// node, and returns the differences. touched are frontends that may have changed otherwise.
func (r *Router) decideServicesAgain(names map[ServiceName]struct{}, touched map[Frontend]*Route) []RouteChange {
	for name := range names {
		r.set(r.decideAgain(name), touched)
	}
	// The same claim means the same endpoints: no Service has changed.
	return slices.DeleteFunc(r.settleAll(touched), func(c RouteChange) bool {
		return c.Old != nil && c.New != nil && c.Old.Port == c.New.Port && c.Old.Kind == c.New.Kind
	})
}

// JoinChanges merges two consecutive lists of changes. The result is unordered.
func JoinChanges(first, second []RouteChange) []RouteChange {
	if len(first) == 0 {
		return second
	}
	joined := make(map[Frontend]RouteChange, len(first))
	for _, c := range slices.Concat(first, second) {
		if before, ok := joined[c.Frontend]; ok {
			c.Old = before.Old
		}
		joined[c.Frontend] = c
	}
	maps.DeleteFunc(joined, func(_ Frontend, c RouteChange) bool { return c.Old == nil && c.New == nil })
	return slices.Collect(maps.Values(joined))
}

// Revert undoes changes that led to a routing. The routing gets lists of its own.
func (r *Routing) Revert(changes []RouteChange) {
	if len(changes) == 0 {
		return
	}
	old := make(map[Frontend]*Route, len(changes))
	for i := range changes {
		old[changes[i].Frontend] = changes[i].Old
	}
	changed := func(f Frontend) bool { _, ok := old[f]; return ok }
	r.Routes = slices.DeleteFunc(slices.Clone(r.Routes), func(o Route) bool { return changed(o.Frontend) })
	r.Echoes = slices.DeleteFunc(slices.Clone(r.Echoes), func(o *Route) bool { return changed(Echo(o.Frontend.Address)) })
	for f, o := range old {
		switch {
		case o == nil:
		case f.IsEcho():
			r.Echoes = append(r.Echoes, o)
		default:
			r.Routes = append(r.Routes, *o)
		}
	}
	slices.SortFunc(r.Routes, func(a, b Route) int { return a.Frontend.Compare(b.Frontend) })
	slices.SortFunc(r.Echoes, func(a, b *Route) int { return a.Frontend.Address.Compare(b.Frontend.Address) })
}
