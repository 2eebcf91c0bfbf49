package render

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// State counts the parts of the rules that frontends of a node share: lanes, options,
// and elements that several frontends need. It is the only owner of these
// counts. With them it computes how a change of some frontends changes the rules
// without visiting the other frontends. It is not safe for concurrent use.
type State struct {
	base   *model.Routing // without routes
	tables map[model.Family]*table
	last   *change
	// loading means that there are no base chains yet, and again that a part of the load
	// changes what an earlier one has added.
	loading, again bool
	spare          spareElements
	resized        uint64 // how often sizes have changed
	composer       *composer
}

// table counts the parts that frontends of one family share. It holds no zero counts,
// except of lanes.
type table struct {
	// lanes in the rules. A sticky lane also counts as a plain one. A lane with zero
	// frontends is idle. It stays for a Service that returns to its number of endpoints:
	// a new chain makes the kernel validate the table.
	lanes    map[laneUse]*laneState
	options  map[option]int32
	elements map[sharedElement]int32
	sizes    map[string]int // elements of each set that routes fill
	// What changes need again: the empty sets of the last options, and the memory of shared counts
	// before the last change.
	declared declaration
	noted    map[sharedElement]int32
	changes  uint64 // how many there were
	family   model.Family
	observe  model.Observe
	exists   bool // in the rules
	beside   bool // exists also without frontends
	// kept are frontends that stay as the kernel serves them. The first change adds them.
	kept []*fragment
}

// declaration is the sets of a table without their elements.
type declaration struct {
	options options
	sets    []nft.Set
}

type laneState struct {
	use       laneUse
	frontends int32
	chain     *nft.Chain // the same one in all changes, so that no comparison of its rules is needed
	touched   uint64     // number of the last change that concerns the lane
	before    int32      // frontends before that change
}

// absent is the count of a lane that is not in the rules.
const absent = -1

// sharedElement is an element that several frontends may need, in as little memory as it
// takes: there is one for each ClusterIP.
type sharedElement struct {
	address  [16]byte
	port     uint16
	protocol model.Protocol // of an endpoint that may connect to itself; zero: the key is an address
	set      uint8          // in nft.SharedSets
}

func isShared(set string) bool { return slices.Contains(nft.SharedSets, set) }

func sharedKey(m *member) sharedElement {
	return sharedElement{m.Key.Address.As16(), m.Key.Port, m.Key.Protocol, uint8(slices.Index(nft.SharedSets, m.set))}
}

func (e sharedElement) setMember() member {
	key := nft.Key{Address: netip.AddrFrom16(e.address).Unmap(), Protocol: e.protocol, Port: e.port}
	if e.protocol != 0 {
		key.Source = key.Address
	}
	return member{nft.SharedSets[e.set], nft.Element{Key: key}}
}

func newState(r *model.Routing) *State {
	base := *r
	base.Routes, base.Echoes, base.HealthChecks, base.Notices, base.NodePortAddresses = nil, nil, nil, nil, nil
	s := &State{base: &base, tables: make(map[model.Family]*table), last: &change{}}
	for _, f := range model.Families {
		s.tables[f] = newTable(f, r.Observe)
	}
	s.composer = &composer{node: r.NodeName, scheduler: r.Scheduler, observe: r.Observe, balancers: r.LoadBalancerCIDRs,
		memory: fragment{elements: make([]member, 0, usualElements)}}
	return s
}

func newTable(f model.Family, observe model.Observe) *table {
	return &table{
		family: f, observe: observe,
		lanes: make(map[laneUse]*laneState), options: make(map[option]int32), elements: make(map[sharedElement]int32),
		sizes: make(map[string]int),
	}
}

// Change follows changes of routes and of the addresses on which NodePorts with the
// unspecified address are served. It returns the parts of the tables that these affect.
// Their difference is the same as of the complete tables.
func (s *State) Change(changes []model.RouteChange, nodePorts []netip.Addr) nft.Delta {
	moved := !slices.Equal(nodePorts, s.base.NodePortAddresses)
	c := s.beginChange(nodePorts)
	for _, f := range model.Families {
		t, own := s.tables[f], ofFamily(changes, f)
		if len(own) == 0 && !moved && (t.exists || !t.beside && len(s.base.ServiceCIDRs)+len(s.base.LoadBalancerCIDRs) == 0) {
			continue
		}
		u := t.beginChange()
		if s.loading && !s.again {
			u.after.isLoaded = true
			if spare := s.spare.parts[s.spare.n][f]; spare != nil {
				for i := range spare {
					spare[i].elements = spare[i].elements[:0]
				}
				u.after.elements = spare
			}
		}
		s.composer.exchanges = u.exists && !s.loading
		t.changeRoutes(s.composer, own, u)
		if u.after.isLoaded {
			if s.spare.parts[s.spare.n] == nil {
				s.spare.parts[s.spare.n] = make(map[model.Family]contents)
			}
			s.spare.parts[s.spare.n][f] = u.after.elements
		}
		c.addTable(f, u)
	}
	s.composer.reset()
	return c.endChange()
}

// DropIdle removes the lanes that no frontend uses.
func (s *State) DropIdle() nft.Delta {
	c := s.beginChange(s.base.NodePortAddresses)
	for _, f := range model.Families {
		if t := s.tables[f]; t.exists {
			u := t.beginChange()
			for _, l := range t.idleLanes() {
				u.before.addLane(&l.use, l.chain)
			}
			t.dropIdle(u)
			c.addTable(f, u)
		}
	}
	return c.endChange()
}

// Undo reverts the last change, which the kernel did not carry out.
func (s *State) Undo() {
	s.base.NodePortAddresses = s.last.addresses
	for _, u := range s.last.updates {
		u.table.undoChange(u)
		s.resized++
	}
	s.last.updates = nil
}

// change is one that is under way, or the last one.
type change struct {
	state     *State
	addresses []netip.Addr // of NodePorts before
	updates   []*tableChange
	delta     nft.Delta
}

func (s *State) beginChange(nodePorts []netip.Addr) *change {
	c := &change{s, s.base.NodePortAddresses, nil, nft.Delta{Before: &nft.Ruleset{}, After: &nft.Ruleset{}}}
	s.base.NodePortAddresses = nodePorts
	return c
}

func (c *change) addTable(f model.Family, u *tableChange) {
	t, base := u.table, c.state.base
	t.trackSizes(u.before, u.after)
	services, unlinked := rangeElements(base.ServiceCIDRs, f), rangeElements(base.UnlinkedCIDRs, f)
	served := slices.ContainsFunc(nft.ServiceMaps, func(services string) bool { return t.sizes[services] > 0 })
	t.exists = t.beside || served || len(services)+len(rangeElements(base.LoadBalancerCIDRs, f)) > 0
	had := c.addresses
	if !u.exists {
		had = nil
		*u.after.elementsIn(nft.ServiceCIDRsSet) = services
		*u.after.elementsIn(nft.LoadBalancerCIDRsSet) = unlinked
		for _, e := range fixedLanes(base.Observe) {
			u.after.add(nft.LanesMap, e)
		}
	}
	if !t.exists {
		t.dropIdle(u)
	}
	if left, came := addressElements(had, base.NodePortAddresses, f), addressElements(base.NodePortAddresses, had, f); len(left)+len(came) > 0 {
		*u.before.elementsIn(nft.NodeAddressesSet) = left
		*u.after.elementsIn(nft.NodeAddressesSet) = came
	}
	c.updates = append(c.updates, u)
	if c.delta.Exchanges == nil { // the rule, without an allocation
		c.delta.Exchanges = u.exchanges
	} else {
		c.delta.Exchanges = append(c.delta.Exchanges, u.exchanges...)
	}
	if t.exists == u.exists && u.before.isEmpty() && u.after.isEmpty() {
		return
	}
	resizes := func(p, other *part) bool {
		return slices.ContainsFunc(p.elements, func(c setContents) bool { return len(c.elements) != len(other.elements.elementsOf(c.set)) })
	}
	if t.exists != u.exists || resizes(u.before, u.after) || resizes(u.after, u.before) {
		c.state.resized++
	}
	used := t.usedOptions()
	if t.exists && u.exists && slices.Equal(used, u.used) {
		sets := t.declareSets(base, used)
		c.add(t.partialTable(u.before, u.after, sets, nil), t.partialTable(u.after, u.before, sets, nil))
		return
	}
	var before, after *nft.Table
	if u.exists {
		before = t.partialTable(u.before, nil, t.declareSets(base, u.used), fixedChains(f, base, u.used))
	}
	if t.exists {
		after = t.partialTable(u.after, nil, t.declareSets(base, used), fixedChains(f, base, used))
	}
	c.add(before, after)
}

// add adds a table before and after the change; nil: there is none.
func (c *change) add(before, after *nft.Table) {
	if before != nil {
		c.delta.Before.Tables = append(c.delta.Before.Tables, c.state.withoutHooks(before))
	}
	if after != nil {
		c.delta.After.Tables = append(c.delta.After.Tables, c.state.withoutHooks(after))
	}
}

func (c *change) endChange() nft.Delta {
	c.state.last = c
	return c.delta
}

func ofFamily(changes []model.RouteChange, f model.Family) []model.RouteChange {
	isOwn := func(c model.RouteChange) bool { return model.FamilyOf(c.Frontend.Address) == f }
	isOther := func(c model.RouteChange) bool { return !isOwn(c) }
	switch {
	case !slices.ContainsFunc(changes, isOther):
		return changes
	case !slices.ContainsFunc(changes, isOwn):
		return nil
	}
	return slices.DeleteFunc(slices.Clone(changes), isOther)
}

func (t *table) usedOptions() options {
	if len(t.options) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(t.options), option.compare)
}

// declareSets returns the sets of the table for some options, which must not be modified.
func (t *table) declareSets(r *model.Routing, o options) []nft.Set {
	if t.declared.sets == nil || !slices.Equal(t.declared.options, o) {
		t.declared = declaration{options: o}
		for _, s := range emptySets(r, o) {
			t.declared.sets = append(t.declared.sets, *s)
		}
	}
	return t.declared.sets
}

// partialTable returns the table with the elements and the lanes of a part: the one before or after a
// change. It has all of some sets, or those alone that are not empty in the part or in the
// one on the other side; nil: there is no other. skeleton are the chains that differ and are
// no lanes.
func (t *table) partialTable(p, other *part, sets []nft.Set, skeleton []*nft.Chain) *nft.Table {
	n := len(sets)
	if other != nil {
		n = min(n, len(p.elements)+len(other.elements)+1)
	}
	own := make([]nft.Set, 0, n)
	out := &nft.Table{Family: t.family, Sets: make([]*nft.Set, 0, n+len(p.clients)), Chains: p.lanes}
	for i := range sets {
		if other != nil && !p.needsSet(sets[i].Name, other) {
			continue
		}
		own = append(own, sets[i])
		s := &own[len(own)-1]
		out.Sets = append(out.Sets, s)
		if s.Elements = p.elements.elementsOf(s.Name); p.isLoaded && !s.Interval {
			continue
		}
		s.Sort()
		s.Elements = slices.CompactFunc(s.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	}
	out.Sets = append(out.Sets, p.clients...)
	if len(skeleton) > 0 {
		out.Chains = slices.Concat(p.lanes, skeleton)
	}
	return out
}

// addShared adds the shared elements that a change touches and that have users, by
// the numbers given.
func (p *part) addShared(touched, numbers map[sharedElement]int32) {
	for e := range touched {
		if numbers[e] > 0 {
			m := e.setMember()
			p.add(m.set, m.Element)
		}
	}
}

func (p *part) isEmpty() bool {
	return len(p.lanes) == 0 && !slices.ContainsFunc(p.elements, func(c setContents) bool { return len(c.elements) > 0 })
}

// HasAffinity reports whether a frontend has session affinity.
func (s *State) HasAffinity() bool {
	for _, t := range s.tables {
		if t.usedOptions().hasKind(sticky) {
			return true
		}
	}
	return false
}
