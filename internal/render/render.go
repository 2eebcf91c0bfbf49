package render

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Render returns the ruleset for a routing: the change from nothing to its routes.
// A family in which nothing is served has no table. The result is sorted and depends
// only on the argument.
func Render(r *model.Routing) *nft.Ruleset {
	_, delta := Start(r)
	return delta.After
}

// Start returns the state for a routing, and the change from nothing to it.
func Start(r *model.Routing) (*State, nft.Delta) { return StartKeeping(r, Kept{}) }

// Only returns the ruleset for the new routes of some changes alone, on a node as a routing
// describes it.
func Only(r *model.Routing, changes []model.RouteChange) *nft.Ruleset {
	return newState(r).Change(changes, r.NodePortAddresses).After
}

// Bare returns what the tables for the frontends of some changes have without any frontend.
func Bare(r *model.Routing, changes []model.RouteChange) *nft.Ruleset {
	s := newState(r)
	for _, c := range changes {
		s.tables[model.FamilyOf(c.Frontend.Address)].beside = true
	}
	return s.Change(nil, r.NodePortAddresses).After
}

func (s *State) start(r *model.Routing) nft.Delta {
	delta := s.Change(Added(r), r.NodePortAddresses)
	s.last = &change{addresses: r.NodePortAddresses} // there is nothing to go back to
	return nft.FromNothing(delta.After)
}

// part is the part of a table that a change affects, before or after it.
type part struct {
	elements contents
	lanes    []*nft.Chain
	clients  []*nft.Set // of limits, which belong to a lane
	// isLoaded means that there is nothing before the part: its elements are not compared,
	// and need no order. None is there twice, since each frontend has its own.
	isLoaded bool
	// exchanges means that a change has the map of endpoints in any case: see [nft.Delta].
	exchanges bool
	// Most changes are small, and concern a lane, and the common one.
	few      [2]*nft.Chain
	fewSets  [4]setContents
	reserved []nft.Element // memory for the elements of several sets
}

type contents []setContents

type setContents struct {
	set      string
	elements []nft.Element
}

func (c contents) elementsOf(set string) []nft.Element {
	for i := range c {
		if c[i].set == set {
			return c[i].elements
		}
	}
	return nil
}

func newPart() *part {
	p := &part{}
	p.lanes, p.elements = p.few[:0], p.fewSets[:0]
	return p
}

// needsSet reports whether a change has a set, which is in this part or in the one on the other side.
func (p *part) needsSet(set string, other *part) bool {
	return len(p.elements.elementsOf(set))+len(other.elements.elementsOf(set)) > 0 || p.exchanges && set == nft.EndpointsMap
}

// elementsIn returns the elements of a set, to be changed at once.
func (p *part) elementsIn(set string) *[]nft.Element {
	for i := range p.elements {
		if p.elements[i].set == set {
			return &p.elements[i].elements
		}
	}
	p.elements = append(p.elements, setContents{set: set})
	return &p.elements[len(p.elements)-1].elements
}

// roomFor returns the elements of a set, to be changed at once, with room for n more.
func (p *part) roomFor(set string, n int) *[]nft.Element {
	all, used := p.elementsIn(set), len(p.reserved)
	if *all == nil && n <= cap(p.reserved)-used {
		p.reserved = p.reserved[:used+n]
		*all = p.reserved[used : used : used+n]
	} else {
		*all = slices.Grow(*all, n)
	}
	return all
}

func (p *part) add(set string, e nft.Element) {
	all := p.roomFor(set, 1)
	*all = append(*all, e)
}

const (
	// usualElements is as many elements as most frontends have, and elementsBeside as many of these
	// as are not of endpoints.
	usualElements  = 16
	elementsBeside = 4
	// fewRoutes is as many as share the memory of their elements.
	fewRoutes = 8
)

// reserveElements makes room for most elements of one side of changes that are paired.
func (p *part) reserveElements(c *composer, changes []model.RouteChange, side func(*model.RouteChange) *model.Route) {
	n, endpoints := 0, 0
	for i := range changes {
		r := side(&changes[i])
		switch {
		case r == nil:
			continue
		case c.pairs[i] == nil:
			endpoints += slotsOf(r, c.scheduler)
		default:
			endpoints += len(c.pairs[i].out)
			p.exchanges = true
		}
		n++
	}
	switch {
	case n == 0:
	case p.isLoaded || n > fewRoutes:
		p.roomFor(nft.ServicesMap, n)
		p.roomFor(nft.EndpointsMap, endpoints)
	default:
		p.reserved = make([]nft.Element, 0, endpoints+elementsBeside*n)
		if p.exchanges {
			p.roomFor(nft.EndpointsMap, endpoints)
		}
	}
}

// addFragment adds the elements of a frontend, except those that frontends share: see
// [part.addShared]. It adds the elements of one set together, because a Service can have
// many endpoints.
func (p *part) addFragment(f *fragment) {
	for rest := f.elements; len(rest) > 0; {
		set, n := rest[0].set, 1
		for n < len(rest) && rest[n].set == set {
			n++
		}
		if !isShared(set) {
			all := p.roomFor(set, n)
			for i := range rest[:n] {
				*all = append(*all, rest[i].Element)
			}
		}
		rest = rest[n:]
	}
}

// addLane adds the chain of a lane, or one that binds or limits clients, and the element that
// leads there, or the set that it needs.
func (p *part) addLane(l *laneUse, chain *nft.Chain) {
	p.lanes = append(p.lanes, chain)
	if l.isLimit() {
		p.clients = append(p.clients, l.limits.set())
	}
	if l.hasClass() {
		p.add(l.leadingMap(), nft.Element{Key: nft.ClassKey(l.classOf()), Value: nft.Value{Verdict: nft.Verdict{Action: nft.Goto, Chain: chain.Name}}})
	}
}

func rangeElements(all []netip.Prefix, f model.Family) []nft.Element {
	var out []nft.Element
	for _, p := range all {
		if model.FamilyOf(p.Addr()) == f {
			out = append(out, nft.Element{Key: nft.Key{Address: p.Addr(), Bits: uint8(p.Bits())}})
		}
	}
	return out
}

// addressElements returns the elements for the addresses of a family that are in the first
// of two sorted lists and not in the second.
func addressElements(in, notIn []netip.Addr, f model.Family) []nft.Element {
	var out []nft.Element
	for _, a := range in {
		if _, both := slices.BinarySearchFunc(notIn, a, netip.Addr.Compare); !both && model.FamilyOf(a) == f {
			out = append(out, nft.Element{Key: nft.Key{Address: a}})
		}
	}
	return out
}
