package render

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// A change of a Service with many endpoints usually replaces one of them. Then the elements of the
// others are neither made nor compared: see [nft.Exchange]. Where the slots of endpoints depend on
// more than the order of a hash, all elements are.

// exchange is what a change replaces of the endpoints of a service port.
type exchange struct {
	out, in   []model.Endpoint // sorted
	positions nft.Exchange     // without the frontend

	// Most changes replace one endpoint.
	one, other     [1]model.Endpoint
	oneAt, otherAt [1]nft.Position
}

// exchangeKey identifies an exchange: the frontends of a service port share it.
type exchangeKey struct {
	old, now *model.Choice
	policy   model.Policy
}

func (c *composer) pairChanges(changes []model.RouteChange, u *tableChange) {
	c.pairs = slices.Grow(c.pairs[:0], len(changes))
	for i := range changes {
		x := c.findExchange(&changes[i])
		c.pairs = append(c.pairs, x)
		if x != nil {
			own := x.positions
			own.Frontend = changes[i].Frontend
			u.exchanges = append(u.exchanges, own)
		}
	}
}

// findExchange returns what a change of a frontend replaces of its endpoints; nil: its other endpoints
// may have other elements, too.
func (c *composer) findExchange(change *model.RouteChange) *exchange {
	old, now := change.Old, change.New
	if !c.exchanges || old == nil || now == nil || change.Frontend.IsEcho() || !c.haveLikeSlots(old, now) {
		return nil
	}
	key := exchangeKey{old.Choice, now.Choice, now.InsidePolicy()}
	x, known := c.paired[key]
	if known {
		return x
	}
	x = newExchange(c.node, now.PortName(), old.Inside().Endpoints, now.Inside().Endpoints)
	if !old.Alone() || !now.Alone() {
		if c.paired == nil {
			c.paired = make(map[exchangeKey]*exchange)
		}
		c.paired[key] = x
	}
	return x
}

// listedEndpoints returns which of the endpoints of a frontend are listed.
func (c *composer) listedEndpoints(all []model.Endpoint) []model.Endpoint {
	switch {
	case c.exchange == nil:
		return all
	case c.comes:
		return c.exchange.in
	}
	return c.exchange.out
}

// boundEndpoints returns the endpoints in a span of a layout to which clients are bound, as far as they are
// listed.
func (c *composer) boundEndpoints(l placement.Layout, s placement.Span) (out []netip.AddrPort) {
	if c.exchange == nil {
		return l.EndpointsIn(s)
	}
	for _, e := range c.listedEndpoints(nil) {
		out = append(out, e.Address())
	}
	return out
}

// haveLikeSlots reports whether the slots of two routes of a frontend follow from their endpoints in the same
// way, in one list for all clients.
func (c *composer) haveLikeSlots(old, now *model.Route) bool {
	for _, r := range [...]*model.Route{old, now} {
		if r.Local() || r.Service.BindsTogether() || r.Frontend.IsRange() || r.Frontend.OnLocalhost() || c.schedulerOf(r).ByClient() {
			return false
		}
	}
	return old.PortName() == now.PortName() && old.Relayed() == now.Relayed() && old.InsidePolicy() == now.InsidePolicy() &&
		(old.AffinityTimeout() == 0) == (now.AffinityTimeout() == 0)
}

// newExchange compares two sorted lists of endpoints of a service port. It returns nil if an endpoint
// has more than one slot, or if one that stays has other elements.
func newExchange(node string, port model.PortName, old, now []model.Endpoint) *exchange {
	if len(old) != len(now) || len(old) == 0 || len(old) > nft.MaxSlots || !weighAlike(old) || !weighAlike(now) {
		return nil
	}
	x := &exchange{positions: nft.Exchange{Endpoints: len(old)}}
	x.out, x.in = x.one[:0], x.other[:0]
	for was, is := old, now; len(was)+len(is) > 0; {
		switch order := compareHeads(was, is); {
		case order < 0:
			x.out, was = append(x.out, was[0]), was[1:]
		case order > 0:
			x.in, is = append(x.in, is[0]), is[1:]
		case mayCallItself(node, was[0]) != mayCallItself(node, is[0]):
			return nil
		default:
			was, is = was[1:], is[1:]
		}
	}
	if len(x.out) > 0 && !x.findPositions(placement.RankHash(node, port), old) {
		return nil
	}
	return x
}

func weighAlike(all []model.Endpoint) bool {
	first := all[0].Weight()
	return !slices.ContainsFunc(all, func(e model.Endpoint) bool { return e.Weight() != first })
}

// compareHeads compares the first endpoints of two lists. The end of a list comes last.
func compareHeads(a, b []model.Endpoint) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	if c := a[0].Host.Address.Compare(b[0].Host.Address); c != 0 {
		return c
	}
	return cmp.Compare(a[0].Port, b[0].Port)
}

// fewRanks is as many endpoints as are ordered without an allocation.
const fewRanks = 64

// findPositions finds the positions: see [placement.New]. It reports whether they follow from the hashes alone.
func (x *exchange) findPositions(start placement.Hasher, old []model.Endpoint) bool {
	var memory [fewRanks]uint64
	before := memory[:0]
	for _, e := range old {
		before = append(before, placement.RankOf(start, e))
	}
	slices.Sort(before)
	var one, other [1]rankedEndpoint
	out, in := appendRanked(one[:0], start, x.out), appendRanked(other[:0], start, x.in)
	x.positions.Out, x.positions.In = x.oneAt[:0], x.otherAt[:0]
	for i := range out {
		at, _ := slices.BinarySearch(before, out[i].rank)
		x.positions.Out = append(x.positions.Out, nft.Position{At: uint32(at), Endpoint: out[i].endpoint.Address()})
	}
	for i := range in {
		at, isThere := slices.BinarySearch(before, in[i].rank)
		if isThere {
			return false
		}
		left, _ := slices.BinarySearchFunc(out, in[i].rank, func(r rankedEndpoint, rank uint64) int { return cmp.Compare(r.rank, rank) })
		x.positions.In = append(x.positions.In, nft.Position{At: uint32(at - left + i), Endpoint: in[i].endpoint.Address()})
	}
	equal := func(a, b rankedEndpoint) bool { return a.rank == b.rank }
	return len(slices.Compact(before)) == len(old) && len(slices.CompactFunc(in, equal)) == len(x.in)
}

type rankedEndpoint struct {
	rank     uint64
	endpoint model.Endpoint
}

func appendRanked(out []rankedEndpoint, start placement.Hasher, all []model.Endpoint) []rankedEndpoint {
	for _, e := range all {
		out = append(out, rankedEndpoint{placement.RankOf(start, e), e})
	}
	slices.SortFunc(out, func(a, b rankedEndpoint) int { return cmp.Compare(a.rank, b.rank) })
	return out
}
