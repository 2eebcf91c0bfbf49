package render

import (
	"cmp"
	"slices"
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
)

// option is an optional part of a table. It is comparable. Only the parameters of its
// kind are set.
type option struct {
	kind     optionKind
	bindings string // the map of clients with session affinity
	limit    limit
	length   lengthOf // of lists of clients
}

func (o option) compare(p option) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), cmp.Compare(o.bindings, p.bindings), o.limit.compare(p.limit), o.length.compare(p.length))
}

// options are the options in use, sorted.
type options []option

// has reports whether an option of a kind is in use.
func (o options) has(k optionKind) bool {
	return slices.ContainsFunc(o, func(p option) bool { return p.kind == k })
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
