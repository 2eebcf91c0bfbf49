package model

import (
	"net/netip"
	"time"
)

// Node is a Kubernetes Node, or the machine itself where there is none.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone; empty: unknown (3.14)
	// Addresses holds the InternalIPs in order, then the ExternalIPs (12.42).
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
	// Leaving tells that the node is about to be taken away: load balancers
	// shall stop using it (10.10).
	Leaving bool
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
	// Triggers are the moments of the changes that this snapshot is the first
	// to contain, as far as the objects tell (11.7).
	Triggers []Trigger
}

// Trigger is when something happened that changed the endpoints of a Service.
type Trigger struct {
	Family Family
	Time   time.Time
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
