package render

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// optionKind is a kind of optional part of a table: sets, chains and rules that are in
// the table only while a frontend uses them, because each costs memory, and some cost
// time for every new connection.
type optionKind uint8

const (
	sticky           optionKind = iota + 1 // session affinity
	allowing                               // frontends with a list of allowed clients
	allowedLength                          // a length of ranges in such lists
	denying                                // frontends with a list of denied clients
	deniedLength                           // a length of ranges in such lists
	guardedNodePorts                       // lists of NodePorts with the unspecified address
	ranged                                 // frontends that are ranges of ports
	limiting                               // connection limits
	limitedNodePorts                       // limits of NodePorts with the unspecified address
	self                                   // frontends that are their own endpoint
	observed                               // frontends whose connections are logged
	redirected                             // frontends whose connections go to the relay
	sourced                                // frontends that masquerade with addresses of their own
)

// option is an optional part of a table. It is comparable. Only the parameters of its
// kind are set.
type option struct {
	kind     optionKind
	bindings string    // the map of clients with session affinity
	shape    nft.Shape // of the sets of frontends
	limit    model.LimitKind
	bits     uint8 // length of ranges in lists of clients
}

func (o option) compare(p option) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), cmp.Compare(o.bindings, p.bindings), cmp.Compare(o.shape, p.shape), cmp.Compare(o.limit, p.limit), cmp.Compare(o.bits, p.bits))
}

// options are the options in use, sorted.
type options []option

func (o options) hasKind(k optionKind) bool { return len(o.ofKind(k)) > 0 }

func (o options) ofKind(k optionKind) options {
	first, _ := slices.BinarySearchFunc(o, k, func(p option, k optionKind) int { return cmp.Compare(p.kind, k) })
	n := first
	for n < len(o) && o[n].kind == k {
		n++
	}
	return o[first:n]
}

func (o options) bindingMaps() []string {
	var out []string
	for _, p := range o.ofKind(sticky) {
		out = append(out, p.bindings)
	}
	return out
}

func optionOf(set string) (o option, ok bool) {
	id := nft.IDOf(set)
	switch {
	case slices.Contains(nft.AffinityMaps, set):
		return option{kind: sticky, bindings: set}, true
	case set == nft.RangesMap:
		return option{kind: ranged}, true
	case id.Name == nft.SelfFrontendsSet:
		return option{kind: self, shape: id.Shape}, true
	case id.Name == nft.SNATFrontendsMap:
		return option{kind: sourced, shape: id.Shape}, true
	}
	for _, s := range []nft.Shape{nft.OfPort, nft.OfRange} {
		if set == observedSet(s) {
			return option{kind: observed, shape: s}, true
		}
	}
	for _, l := range clientLists {
		if id.Name == l.frontends {
			return option{kind: l.gate, shape: id.Shape}, true
		}
		if bits, denied, ok := nft.ClientSet(set); ok && denied == (l.length == deniedLength) {
			return option{kind: l.length, shape: id.Shape, bits: uint8(bits)}, true
		}
	}
	for k := range model.LimitKinds {
		if kind := model.LimitKind(k); id.Name == frontendsOf(kind) {
			return option{kind: limiting, shape: id.Shape, limit: kind}, true
		}
	}
	return option{}, false
}
