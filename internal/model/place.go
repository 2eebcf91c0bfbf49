package model

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unique"
)

// Place is the node and the zone of a host, and the nodes and zones that its topology hints
// name. Hosts with the same place share it. It is comparable; the zero value is an unknown
// node and zone without hints.
type Place struct{ shared unique.Handle[place] }

type place struct {
	node, zone         string
	forZones, forNodes names
}

// OnNode returns the place of a host of an unknown zone without topology hints.
func OnNode(name string) Place { return NewPlace(name, "", nil, nil) }

// NewPlace returns the place of a host with topology hints.
func NewPlace(node, zone string, forZones, forNodes []string) Place {
	p := place{node, zone, joinNames(forZones), joinNames(forNodes)}
	if p == (place{}) {
		return Place{}
	}
	return Place{unique.Make(p)}
}

func (p Place) get() place {
	if p == (Place{}) {
		return place{}
	}
	return p.shared.Value()
}

// Node returns the name of the node; empty: unknown (2.15).
func (p Place) Node() string { return p.get().node }

// Zone returns the name of the zone; empty: unknown (2.27).
func (p Place) Zone() string { return p.get().zone }

// ForZones returns the zone hints (2.16).
func (p Place) ForZones() []string { return slices.Collect(p.get().forZones.eachName) }

// ForNodes returns the node hints (2.16).
func (p Place) ForNodes() []string { return slices.Collect(p.get().forNodes.eachName) }

// String returns for example "node-1 in zone a for zones [a b] nodes []".
func (p Place) String() string {
	text := p.Node()
	if zone := p.Zone(); zone != "" {
		text += " in zone " + zone
	}
	if zones, nodes := p.ForZones(), p.ForNodes(); len(zones)+len(nodes) > 0 {
		text += " for zones [" + strings.Join(zones, " ") + "] nodes [" + strings.Join(nodes, " ") + "]"
	}
	return text
}

func (p Place) compare(o Place) int {
	if p == o {
		return 0
	}
	a, b := p.get(), o.get()
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.forZones, b.forZones), cmp.Compare(a.forNodes, b.forNodes), cmp.Compare(a.zone, b.zone))
}

// names is a comparable list of names, each with its length before it: names in a file
// may have any character.
type names string

func joinNames(all []string) names {
	var b []byte
	for _, name := range all {
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	}
	return names(b)
}

func (n names) eachName(yield func(string) bool) {
	for rest := string(n); rest != ""; {
		length, bytes := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		rest = rest[bytes:]
		if !yield(rest[:length]) {
			return
		}
		rest = rest[length:]
	}
}

func (n names) hasName(name string) bool {
	for one := range n.eachName {
		if one == name {
			return true
		}
	}
	return false
}
