package model

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Node is a Kubernetes Node, or the machine itself where there is none.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone; empty: unknown (3.14)
	// Addresses holds the InternalIPs in order, then the ExternalIPs (12.42).
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
	// Leaving reports that the node is about to be removed: load balancers shall
	// stop using it (10.10).
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

// Snapshot is everything a source knows at one moment. Order does not matter.
type Snapshot struct {
	Nodes        []*Node
	Services     []*Service
	Slices       []*EndpointSlice
	ServiceCIDRs []netip.Prefix
}

// Update is what a source has to tell since its last update. Its values are
// shared: they must not be changed.
type Update struct {
	// Services are those that have changed, or whose slices have, with what
	// they are now: the zero state if they are gone.
	Services map[ServiceName]ServiceState
	// Nodes are all that there are. ServiceCIDRs is their union as
	// [MergePrefixes] returns it: when either differs from the last update, all
	// routes are computed again.
	Nodes        []*Node
	ServiceCIDRs []netip.Prefix
	// Triggers are the moments of the changes that this update is the first to
	// contain, as far as the objects tell (11.7).
	Triggers []Trigger
}

// Then returns one update that says what u and next say. A nil u says nothing.
func (u *Update) Then(next *Update) *Update {
	if u == nil {
		return next
	}
	both := *next
	both.Services = maps.Clone(u.Services)
	maps.Copy(both.Services, next.Services)
	both.Triggers = slices.Concat(u.Triggers, next.Triggers)
	return &both
}

// Update returns what a snapshot says, as an update from nothing.
func (s *Snapshot) Update() *Update { return s.Since(&Snapshot{}) }

// Since returns what a snapshot says other than one before. It looks at all
// Services.
func (s *Snapshot) Since(before *Snapshot) *Update {
	u := &Update{Services: s.states(), Nodes: s.Nodes, ServiceCIDRs: MergePrefixes(s.ServiceCIDRs)}
	for name, was := range before.states() {
		if now, ok := u.Services[name]; !ok {
			u.Services[name] = ServiceState{}
		} else if reflect.DeepEqual(was, now) {
			delete(u.Services, name)
		}
	}
	return u
}

func (s *Snapshot) states() map[ServiceName]ServiceState {
	out := make(map[ServiceName]ServiceState, len(s.Services))
	bySlices := groupSlices(s.Slices)
	for _, svc := range s.Services {
		out[svc.Name] = ServiceState{svc, bySlices[svc.Name]}
	}
	return out
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
