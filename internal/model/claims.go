package model

import (
	"cmp"
	"math/rand/v2"
)

// claimOrder is how claims are compared.
type claimOrder uint8

const (
	byPorts claimOrder = iota // first port, last port, then as [byClaim]
	byClaim                   // see [compareClaims]
	byEcho                    // see [compareEchoes]
)

func (o claimOrder) compare(a, b *Route) int {
	switch o {
	case byEcho:
		return compareEchoes(a, b)
	case byPorts:
		if c := cmp.Or(cmp.Compare(a.Frontend.Port, b.Frontend.Port), cmp.Compare(a.Frontend.lastPort(), b.Frontend.lastPort())); c != 0 {
			return c
		}
	}
	return compareClaims(a, b)
}

// contests decide between routes that ask for the same: the first one by an order has it.
type contests[K comparable] struct {
	winners map[K]*Route
	losers  map[K]*claims // further claims
	order   claimOrder
}

func newContests[K comparable](order claimOrder, size int) contests[K] {
	return contests[K]{make(map[K]*Route, size), make(map[K]*claims), order}
}

// join adds a claimant, and returns the one that loses because of that, or nil. There may be
// many.
func (c *contests[K]) join(k K, route *Route) (loser *Route) {
	winner := c.winners[k]
	if winner == nil {
		c.winners[k] = route
		return nil
	}
	if c.order.compare(route, winner) < 0 {
		c.winners[k], route = route, winner
	}
	if c.losers[k] == nil {
		c.losers[k] = &claims{claimOrder: c.order}
	}
	c.losers[k].add(route)
	return route
}

func (c *contests[K]) removeClaim(k K, route *Route) {
	losers := c.losers[k]
	switch {
	case losers == nil:
		delete(c.winners, k)
		return
	case c.winners[k] == route:
		c.winners[k] = losers.takeFirst()
	default:
		losers.remove(route)
	}
	if losers.n == 0 {
		delete(c.losers, k)
	}
}

// claims are sorted routes that compete for the ports of one address and protocol. They are a treap, in which each node has the last port
// of all routes below it, so that a search for the routes that overlap some ports
// skips the others: one Service can have a thousand ranges that overlap ranges of many.
type claims struct {
	claimOrder
	root *claimNode
	n    int
}

type claimNode struct {
	route       *Route
	left, right *claimNode
	weight      uint32 // random; no node below has a higher one
	last        uint16 // the highest of all ports of this route and of those below
}

func (f Frontend) lastPort() uint16 { return max(f.Port, f.Last) }

// add adds a route. Several may be equal: an address that a Service lists twice.
func (c *claims) add(route *Route) {
	before, behind := c.split(c.root, route)
	node := &claimNode{route: route, weight: rand.Uint32(), last: route.Frontend.lastPort()}
	c.root = mergeClaims(mergeClaims(before, node), behind)
	c.n++
}

// remove removes a route, or an equal one, and reports whether there was one.
func (c *claims) remove(route *Route) bool {
	before, behind := c.split(c.root, route)
	first, rest := behind.cutFirst()
	found := first != nil && c.compare(first.route, route) == 0
	if found {
		behind = rest
		c.n--
	} else if first != nil {
		behind = mergeClaims(first, rest)
	}
	c.root = mergeClaims(before, behind)
	return found
}

// takeFirst removes the first route and returns it. There must be one.
func (c *claims) takeFirst() *Route {
	first, rest := c.root.cutFirst()
	c.root = rest
	c.n--
	return first.route
}

// eachRoute calls yield with all routes in their order, until that returns false.
func (c *claims) eachRoute(yield func(*Route) bool) {
	if c != nil {
		c.root.eachOverlapping(0, AllPorts, yield)
	}
}

// eachOverlapping calls yield with the routes that share ports with a frontend of the same
// address and protocol, in their order, until that returns false.
func (c *claims) eachOverlapping(f Frontend) func(yield func(*Route) bool) {
	return func(yield func(*Route) bool) { c.root.eachOverlapping(f.Port, f.lastPort(), yield) }
}

func (n *claimNode) eachOverlapping(first, last uint16, yield func(*Route) bool) bool {
	switch {
	case n == nil || n.last < first:
		return true
	case !n.left.eachOverlapping(first, last, yield):
		return false
	case n.route.Frontend.Port > last:
		return true
	case n.route.Frontend.lastPort() >= first && !yield(n.route):
		return false
	}
	return n.right.eachOverlapping(first, last, yield)
}

// split returns the routes before one, and the others.
func (c *claims) split(n *claimNode, route *Route) (before, behind *claimNode) {
	switch {
	case n == nil:
		return nil, nil
	case c.compare(n.route, route) < 0:
		n.right, behind = c.split(n.right, route)
		n.updateLast()
		return n, behind
	}
	before, n.left = c.split(n.left, route)
	n.updateLast()
	return before, n
}

// cutFirst returns the first node without any below it, and the others.
func (n *claimNode) cutFirst() (first, rest *claimNode) {
	switch {
	case n == nil:
		return nil, nil
	case n.left == nil:
		rest, n.right = n.right, nil
		n.updateLast()
		return n, rest
	}
	first, n.left = n.left.cutFirst()
	n.updateLast()
	return first, n
}

// mergeClaims joins two treaps; no route of the second one is before one of the first.
func mergeClaims(a, b *claimNode) *claimNode {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight >= b.weight:
		a.right = mergeClaims(a.right, b)
		a.updateLast()
		return a
	}
	b.left = mergeClaims(a, b.left)
	b.updateLast()
	return b
}

func (n *claimNode) updateLast() {
	n.last = n.route.Frontend.lastPort()
	for _, o := range [...]*claimNode{n.left, n.right} {
		if o != nil {
			n.last = max(n.last, o.last)
		}
	}
}
