package render

import (
	"cmp"
	"slices"
	"strings"

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
	limitingRanges                         // connection limits of ranges of ports
	self                                   // frontends that are their own endpoint
)

// option is an optional part of a table. It is comparable. Only the parameters of its
// kind are set.
type option struct {
	kind     optionKind
	bindings string // the map of clients with session affinity
	limit    model.LimitKind
	length   lengthOf // of lists of clients; of frontends that are their own endpoint, whether they are ranges
}

func (o option) compare(p option) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), cmp.Compare(o.bindings, p.bindings), cmp.Compare(o.limit, p.limit), o.length.compare(p.length))
}

// options are the options in use, sorted.
type options []option

// has reports whether an option of a kind is in use.
func (o options) has(k optionKind) bool {
	return slices.ContainsFunc(o, func(p option) bool { return p.kind == k })
}

// selves returns whether there are frontends, and ranges of ports, that are their own
// endpoint: false and true.
func (o options) selves() (ranged []bool) {
	for _, p := range o {
		if p.kind == self {
			ranged = append(ranged, p.length.ranged)
		}
	}
	return ranged
}

// bindings returns the maps of clients with session affinity that are in use, sorted.
func (o options) bindings() []string {
	var out []string
	for _, p := range o {
		if p.kind == sticky {
			out = append(out, p.bindings)
		}
	}
	return out
}

// Part is a table, or one that has an optional part. It is comparable.
type Part struct {
	family model.Family
	option option // zero: the table alone
}

// PartsIn returns the tables that the kernel holds, and their optional parts.
func PartsIn(held *nft.Ruleset) (out []Part) {
	for _, t := range held.Tables {
		out = append(out, Part{family: t.Family})
		for _, o := range optionsIn(t) {
			out = append(out, Part{t.Family, o})
		}
	}
	return out
}

// optionsIn returns the options whose sets and chains a table has.
func optionsIn(t *nft.Table) (out options) {
	for _, s := range t.Sets {
		if o, ok := optionOf(s.Name); ok {
			out = append(out, o)
		}
	}
	for _, c := range t.Chains {
		switch c.Name {
		case nft.NodePrefix + nft.LimitChain:
			out = append(out, option{kind: limitedNodePorts})
		case nft.NodePrefix + nft.AllowChain, nft.NodePrefix + nft.DenyChain:
			out = append(out, option{kind: guardedNodePorts})
		}
	}
	return out
}

// optionOf returns the option that a set belongs to.
func optionOf(set string) (o option, ok bool) {
	name, ofRanges := strings.CutPrefix(set, nft.RangePrefix)
	length := lengthOf{ranged: ofRanges}
	switch {
	case slices.Contains(nft.AffinityMaps, set):
		return option{kind: sticky, bindings: set}, true
	case set == nft.RangesMap:
		return option{kind: ranged}, true
	case name == nft.SelfFrontendsSet:
		return option{kind: self, length: length}, true
	case name == nft.AllowFrontendsSet:
		return option{kind: allowing, length: length}, true
	case name == nft.DenyFrontendsSet:
		return option{kind: denying, length: length}, true
	}
	if bits, denied, ok := nft.ClientSet(set); ok {
		length.bits = uint8(bits)
		if denied {
			return option{kind: deniedLength, length: length}, true
		}
		return option{kind: allowedLength, length: length}, true
	}
	for k := range model.LimitKinds {
		if o.limit = model.LimitKind(k); name != frontendsOf(o.limit) {
			continue
		}
		if o.kind = limiting; ofRanges {
			o.kind = limitingRanges
		}
		return o, true
	}
	return option{}, false
}
