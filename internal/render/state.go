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
	// loading means that there are no base chains yet.
	loading bool
	spare   spareElements
	resized uint64 // how often sizes have changed
}

// table counts the parts that frontends of one family share. It holds no zero counts,
// except of lanes.
type table struct {
	// lanes in the rules. A sticky lane also counts as a plain one. A lane with zero
	// frontends is idle. It stays for a Service that returns to its number of endpoints:
	// a new chain makes the kernel validate the table.
	lanes    map[laneUse]int32
	options  map[option]int32
	elements map[sharedElement]int32
	sizes    map[string]int // elements of each set that routes fill
	// What changes need again: the chains of lanes, and the empty sets of the last options.
	chains   map[laneUse]*nft.Chain
	declared declaration
	family   model.Family
	observe  model.Observe
	exists   bool // in the rules
	beside   bool // exists also without frontends, beside those that are left out
}

// declaration is the sets of a table without their elements.
type declaration struct {
	options options
	sets    []nft.Set
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

func shared(set string) bool { return slices.Contains(nft.SharedSets, set) }

func sharedKey(m *member) sharedElement {
	return sharedElement{m.Key.Address.As16(), m.Key.Port, m.Key.Protocol, uint8(slices.Index(nft.SharedSets, m.set))}
}

// member returns the element, and the set that it is in.
func (e sharedElement) member() member {
	key := nft.Key{Address: netip.AddrFrom16(e.address).Unmap(), Protocol: e.protocol, Port: e.port}
	if e.protocol != 0 {
		key.Source = key.Address
	}
	return member{nft.SharedSets[e.set], nft.Element{Key: key}}
}

// newState returns the state without any table.
func newState(r *model.Routing) *State {
	base := *r
	base.Routes, base.Echoes, base.HealthChecks, base.Notices, base.NodePortAddresses = nil, nil, nil, nil, nil
	s := &State{base: &base, tables: make(map[model.Family]*table), last: &change{}}
	for _, f := range model.Families {
		s.tables[f] = newTable(f, r.Observe)
	}
	return s
}

func newTable(f model.Family, observe model.Observe) *table {
	return &table{
		family: f, observe: observe,
		lanes: make(map[laneUse]int32), options: make(map[option]int32), elements: make(map[sharedElement]int32),
		sizes: make(map[string]int), chains: make(map[laneUse]*nft.Chain),
	}
}

// Change follows changes of routes and of the addresses on which NodePorts with the
// unspecified address are served. It returns the parts of the tables that these affect.
// Their difference is the same as of the complete tables.
func (s *State) Change(changes []model.RouteChange, nodePorts []netip.Addr) nft.Delta {
	moved := !slices.Equal(nodePorts, s.base.NodePortAddresses)
	c := s.begin(nodePorts)
	for _, f := range model.Families {
		t, own := s.tables[f], ofFamily(changes, f)
		if len(own) == 0 && !moved && (t.exists || !t.beside && len(s.base.ServiceCIDRs)+len(s.base.LoadBalancerCIDRs) == 0) {
			continue
		}
		u := t.begin()
		if s.loading {
			u.after.isLoaded, u.after.elements = true, s.spare.next(f)
		}
		t.change(s.base, own, u)
		c.take(f, u)
	}
	return c.end()
}

// DropIdle removes the lanes that no frontend uses.
func (s *State) DropIdle() nft.Delta {
	c := s.begin(s.base.NodePortAddresses)
	for _, f := range model.Families {
		if t := s.tables[f]; t.exists {
			u := t.begin()
			for _, l := range t.idle() {
				u.before.lane(l, t.chain(l))
			}
			t.dropIdle(u)
			c.take(f, u)
		}
	}
	return c.end()
}

// idle returns the lanes without a frontend, sorted.
func (t *table) idle() []laneUse {
	var out []laneUse
	for u, n := range t.lanes {
		if n == 0 {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, laneUse.compare)
	return out
}

func (t *table) dropIdle(u *update) {
	for _, l := range t.idle() {
		if _, known := u.lanes[l]; !known {
			u.lanes[l] = 0
		}
		t.deleteLane(l)
	}
}

// Undo reverts the last change, which the kernel did not carry out.
func (s *State) Undo() {
	s.base.NodePortAddresses = s.last.addresses
	for _, u := range s.last.updates {
		u.table.restore(u)
		s.resized++
	}
	s.last.updates = nil
}

// change is one that is under way, or the last one.
type change struct {
	state     *State
	addresses []netip.Addr // of NodePorts before
	updates   []*update
	delta     nft.Delta
}

func (s *State) begin(nodePorts []netip.Addr) *change {
	c := &change{s, s.base.NodePortAddresses, nil, nft.Delta{Before: &nft.Ruleset{}, After: &nft.Ruleset{}}}
	s.base.NodePortAddresses = nodePorts
	return c
}

// take adds what changes of one table.
func (c *change) take(f model.Family, u *update) {
	t, base := u.table, c.state.base
	t.resize(u.before, u.after)
	services, balancers := ranges(base.ServiceCIDRs, f), ranges(base.LoadBalancerCIDRs, f)
	t.exists = t.beside || t.frontends() > 0 || len(services)+len(balancers) > 0
	had := c.addresses
	if !u.exists {
		had = nil
		u.after.elements[nft.ServiceCIDRsSet], u.after.elements[nft.LoadBalancerCIDRsSet] = services, balancers
		u.after.elements[nft.LanesMap] = append(u.after.elements[nft.LanesMap], fixedLanes(base.Observe)...)
	}
	if !t.exists {
		t.dropIdle(u)
	}
	u.before.elements[nft.NodeAddressesSet] = addresses(had, base.NodePortAddresses, f)
	u.after.elements[nft.NodeAddressesSet] = addresses(base.NodePortAddresses, had, f)
	c.updates = append(c.updates, u)
	if t.exists == u.exists && u.before.isEmpty() && u.after.isEmpty() {
		return
	}
	if t.exists != u.exists || u.resizes() {
		c.state.resized++
	}
	used := t.used()
	differs := t.exists != u.exists || !slices.Equal(used, u.used)
	if u.exists {
		c.delta.Before.Tables = append(c.delta.Before.Tables, c.state.part(t.rules(u.before, base, u.used, differs)))
	}
	if t.exists {
		c.delta.After.Tables = append(c.delta.After.Tables, c.state.part(t.rules(u.after, base, used, differs)))
	}
}

func (c *change) end() nft.Delta {
	c.state.last = c
	return c.delta
}

func ofFamily(changes []model.RouteChange, f model.Family) []model.RouteChange {
	isOther := func(c model.RouteChange) bool { return model.FamilyOf(c.Frontend.Address) != f }
	if !slices.ContainsFunc(changes, isOther) {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), isOther)
}

// update is the effect of a change on one table, and the previous counts, for Undo.
type update struct {
	table         *table
	before, after *part

	lanes    map[laneUse]int32
	options  map[option]int32
	elements map[sharedElement]int32
	used     options // all
	exists   bool
}

// resizes reports whether a set has another number of elements afterwards.
func (u *update) resizes() bool {
	differs := func(p, other *part) bool {
		for set, e := range p.elements {
			if len(e) != len(other.elements[set]) {
				return true
			}
		}
		return false
	}
	return differs(u.before, u.after) || differs(u.after, u.before)
}

// begin begins an update. Without a table before all counts were zero.
func (t *table) begin() *update {
	u := &update{table: t, before: newPart(), after: newPart(), used: t.used(), exists: t.exists}
	if t.exists {
		u.lanes, u.elements = make(map[laneUse]int32), make(map[sharedElement]int32)
	}
	return u
}

func (t *table) restore(u *update) {
	if !u.exists {
		*t = *newTable(t.family, t.observe)
		return
	}
	for l, n := range u.lanes {
		if t.lanes[l] = n; n == absent {
			t.deleteLane(l)
		}
	}
	restore(t.options, u.options)
	restore(t.elements, u.elements)
	t.resize(u.after, u.before)
	t.exists = true
}

// frontends returns the number of frontends.
func (t *table) frontends() (n int) {
	for _, services := range nft.ServiceMaps {
		n += t.sizes[services]
	}
	return n
}

// resize follows the sizes of the sets that routes fill.
func (t *table) resize(before, after *part) {
	for set, e := range before.elements {
		t.sizes[set] -= len(e)
	}
	for set, e := range after.elements {
		t.sizes[set] += len(e)
	}
}

func restore[K comparable](counts, was map[K]int32) {
	for k, n := range was {
		if counts[k] = n; n == 0 {
			delete(counts, k)
		}
	}
}

// count adds n to a number, and keeps the number before the change in was, if that is not
// nil.
func count[K comparable](counts, was map[K]int32, k K, n int32) (now int32) {
	before := counts[k]
	if _, known := was[k]; !known && was != nil {
		was[k] = before
	}
	if now = before + n; now == 0 {
		delete(counts, k)
	} else {
		counts[k] = now
	}
	return now
}

// count adds a fragment n times: once or, to remove it, -1 times.
func (t *table) count(f *fragment, n int32, u *update) {
	for i := range f.elements {
		m := &f.elements[i]
		switch {
		case !shared(m.set):
		case u.after.isLoaded:
			if count(t.elements, nil, sharedKey(m), n) == n { // the first one that needs it
				u.after.elements[m.set] = append(u.after.elements[m.set], m.Element)
			}
		default:
			count(t.elements, u.elements, sharedKey(m), n)
		}
	}
	for _, l := range f.lanes {
		t.countLane(l, n, u)
		if l.bindings != "" {
			t.countLane(l.plain(), n, u)
		}
	}
	if len(f.options) > 0 && u.exists && u.options == nil {
		u.options = make(map[option]int32)
	}
	for _, o := range f.options {
		count(t.options, u.options, o, n)
	}
}

func (t *table) countLane(l laneUse, n int32, u *update) {
	before, there := t.lanes[l]
	if _, known := u.lanes[l]; !known && u.lanes != nil {
		u.lanes[l] = absent
		if there {
			u.lanes[l] = before
		}
	}
	t.lanes[l] = before + n
}

// used returns the options in use.
func (t *table) used() options {
	if len(t.options) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(t.options), option.compare)
}

// use counts the options of routes that are not in the table.
func (t *table) use(r *model.Routing, changes []model.RouteChange) {
	if t.beside = len(changes) > 0; !t.beside {
		return
	}
	composer := newComposer(r)
	var f fragment
	for i := range changes {
		if now := changes[i].New; now != nil {
			composer.compose(changes[i].Frontend, now, &f)
			for _, o := range f.options {
				count(t.options, nil, o, 1)
			}
		}
	}
}

// usualElements is as many elements as most frontends have.
const usualElements = 16

// change counts what changes of routes change, and collects it.
func (t *table) change(r *model.Routing, changes []model.RouteChange, u *update) {
	composer := newComposer(r)
	u.after.reserve(changes, r.Scheduler)
	f := fragment{elements: make([]member, 0, usualElements)}
	take := func(of model.Frontend, r, other *model.Route, n int32, to *part) {
		if r != nil {
			composer.other = other
			composer.compose(of, r, &f)
			t.count(&f, n, u)
			to.take(&f)
		}
	}
	for i := range changes {
		take(changes[i].Frontend, changes[i].Old, changes[i].New, -1, u.before)
	}
	for i := range changes {
		take(changes[i].Frontend, changes[i].New, changes[i].Old, 1, u.after)
	}
	elements, lanes := u.elements, u.lanes
	if !t.exists {
		elements, lanes = t.elements, t.lanes
	}
	if !u.after.isLoaded {
		u.before.share(elements, u.elements)
		u.after.share(elements, t.elements)
	}
	touched := slices.AppendSeq(make([]laneUse, 0, len(lanes)), maps.Keys(lanes))
	slices.SortFunc(touched, laneUse.compare)
	for _, l := range touched {
		t.changeLane(l, u)
	}
	if len(u.options) == 0 {
		return
	}
	for _, l := range t.idle() {
		if _, done := u.lanes[l]; !done && !t.recalls(l) {
			u.lanes[l] = 0
			t.changeLane(l, u)
		}
	}
}

// recalls reports whether the chain exists in which a lane looks up clients, or the map
// in which the lane of a range looks up endpoints, or clients are bound.
func (t *table) recalls(l laneUse) bool {
	bindings := l.bindings
	switch {
	case l.isLimit(): // what clients did counts from the time when the limit is set (4.90)
		return false
	case l.lane.shape == nft.OfRange:
		return t.used().has(ranged)
	case l.isBinder():
		bindings = l.binds.Bindings()
	}
	return bindings == "" || t.options[option{kind: sticky, bindings: bindings}] > 0
}

// changeLane adds the chain of a lane where it was, and where it is to be. A lane
// that nothing uses any more stays, idle, as long as its destination.
func (t *table) changeLane(l laneUse, u *update) {
	n, known := u.lanes[l]
	there, used := known && n != absent, t.lanes[l] > 0
	idle := there && !used && t.recalls(l)
	chain := t.chain(l) // one for both, so that no comparison of its rules is needed
	if there {
		u.before.lane(l, chain)
	}
	if used || idle {
		u.after.lane(l, chain)
	} else {
		t.deleteLane(l)
	}
}

// chain returns the chain of a lane, the same one each time.
func (t *table) chain(l laneUse) *nft.Chain {
	c, ok := t.chains[l]
	if !ok {
		c = l.chain(t.observe)
		t.chains[l] = c
	}
	return c
}

func (t *table) deleteLane(l laneUse) {
	delete(t.lanes, l)
	delete(t.chains, l)
}

// declare returns the sets of the table for some options, which must not be modified.
func (t *table) declare(r *model.Routing, o options) []nft.Set {
	if t.declared.sets == nil || !slices.Equal(t.declared.options, o) {
		t.declared = declaration{options: o}
		for _, s := range sets(r, o) {
			t.declared.sets = append(t.declared.sets, *s)
		}
	}
	return t.declared.sets
}

// rules returns the table with all sets except the sets of lanes, but only the elements and
// the lanes of a part. It has the chains of every table only if they may differ before and
// after.
func (t *table) rules(p *part, r *model.Routing, o options, skeletonDiffers bool) *nft.Table {
	own := slices.Clone(t.declare(r, o))
	out := &nft.Table{Family: t.family, Sets: make([]*nft.Set, 0, len(own)+len(p.clients)), Chains: p.lanes}
	for i := range own {
		out.Sets = append(out.Sets, &own[i])
	}
	out.Sets = append(out.Sets, p.clients...)
	if skeletonDiffers {
		out.Chains = slices.Concat(p.lanes, chains(t.family, r, o))
	}
	for _, s := range out.Sets {
		if s.Elements = p.elements[s.Name]; p.isLoaded && !s.Interval {
			continue
		}
		s.Sort()
		s.Elements = slices.CompactFunc(s.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	}
	return out
}

// share adds the shared elements that a change touches and that have users, by
// the numbers given.
func (p *part) share(touched, numbers map[sharedElement]int32) {
	for e := range touched {
		if numbers[e] > 0 {
			m := e.member()
			p.elements[m.set] = append(p.elements[m.set], m.Element)
		}
	}
}

func (p *part) isEmpty() bool {
	for _, e := range p.elements {
		if len(e) > 0 {
			return false
		}
	}
	return len(p.lanes) == 0
}

// HasAffinity reports whether a frontend has session affinity.
func (s *State) HasAffinity() bool {
	for _, t := range s.tables {
		if t.used().has(sticky) {
			return true
		}
	}
	return false
}

// SetSize is the number of elements of a set or map.
type SetSize struct {
	Family   model.Family
	Set      string
	Elements int
}

// classes returns the number of elements in a map that leads to chains.
func (t *table) classes(leads string) (n int) {
	if leads == nft.LanesMap {
		n = len(fixedLanes(t.observe))
	}
	for l := range t.lanes {
		if l.hasClass() && l.leads() == leads {
			n++
		}
	}
	return n
}

// Resized returns a number that is another one after each change of a size.
func (s *State) Resized() uint64 { return s.resized }

// Sizes returns the sizes of all sets and maps that are not dynamic, in no order.
func (s *State) Sizes() []SetSize {
	var out []SetSize
	for f, t := range s.tables {
		if !t.exists {
			continue
		}
		for _, set := range t.declare(s.base, t.used()) {
			n := t.sizes[set.Name]
			switch {
			case set.Dynamic:
				continue
			case slices.Contains(nft.LaneMaps, set.Name):
				n = t.classes(set.Name)
			case set.Name == nft.ServiceCIDRsSet:
				n = len(ranges(s.base.ServiceCIDRs, f))
			case set.Name == nft.LoadBalancerCIDRsSet:
				n = len(ranges(s.base.LoadBalancerCIDRs, f))
			case set.Name == nft.NodeAddressesSet:
				n = len(addresses(s.base.NodePortAddresses, nil, f))
			}
			out = append(out, SetSize{f, set.Name, n})
		}
	}
	return out
}
