package model

import "net/netip"

// Node is a Kubernetes Node, or the machine itself where there is none.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone; empty: unknown (3.14)
	// Addresses holds the InternalIPs in order, then the ExternalIPs (12.42).
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
}

// primaryAddress returns the node's first address of family f.
func (n *Node) primaryAddress(f Family) (netip.Addr, bool) {
	for _, a := range n.Addresses {
		if FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Snapshot is everything a source knows at one moment. Order carries no
// meaning.
type Snapshot struct {
	Nodes        []*Node
	Services     []*Service
	Slices       []*EndpointSlice
	ServiceCIDRs []netip.Prefix
}

// Node returns the node of that name, or one that has only the name.
func (s *Snapshot) Node(name string) (*Node, bool) {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return &Node{Name: name}, false
}
