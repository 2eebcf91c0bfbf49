package nft

import "github.com/nftproxy/nftproxy/internal/model"

// Shape is which frontends a set or chain is for. Chains and sets of the same purpose have
// the same name in all shapes, with a prefix.
type Shape uint8

const (
	OfPort  Shape = iota // those with one port
	OfNode               // NodePorts with the unspecified address
	OfRange              // ranges of ports
)

// Shapes are all of them, in the order in which packets pass them.
var Shapes = [...]Shape{OfPort, OfNode, OfRange}

// ShapeOf returns the shape of a frontend.
func ShapeOf(f model.Frontend) Shape {
	switch {
	case f.IsRange():
		return OfRange
	case f.Address.IsUnspecified():
		return OfNode
	}
	return OfPort
}

func (s Shape) namePrefix() string { return [...]string{"", "node-", "range-"}[s] }

// Chain returns the name of a chain.
func (s Shape) Chain(name string) string { return s.namePrefix() + name }

// InSets returns the shape of the sets that have the frontends: the elements of NodePorts
// are in the same sets as elements of other frontends with one port.
func (s Shape) InSets() Shape {
	if s == OfNode {
		return OfPort
	}
	return s
}

// Set returns the name of a set that has the frontends.
func (s Shape) Set(name string) string { return SetID{name, s.InSets()}.String() }

// SetFor returns the name of a set for the shape of a frontend.
func SetFor(f model.Frontend, set string) string { return ShapeOf(f).Set(set) }

// SetID is the identity of a set. It is comparable.
type SetID struct {
	Name  string // the name of its counterpart for frontends with one port, if there is one
	Shape Shape
}

func (id SetID) String() string { return id.Shape.namePrefix() + id.Name }
