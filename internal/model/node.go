package model

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/words"
)

// Node is a Kubernetes Node, or the machine itself if there is none.
type Node struct {
	Name      string
	Zone      string       // label topology.kubernetes.io/zone; empty: unknown (3.14)
	Addresses []netip.Addr // the InternalIPs in order, then the ExternalIPs (12.42)
	PodCIDRs  []netip.Prefix
	Leaving   bool // about to be removed: load balancers should stop using it (10.10)
}

func (n *Node) primaryAddress(f Family) (netip.Addr, bool) { return firstIn(f, n.Addresses) }

// Snapshot is the state of a source at one moment. Order does not matter.
type Snapshot struct {
	Nodes        []*Node
	Services     []*Service
	Slices       []*EndpointSlice
	ServiceCIDRs []netip.Prefix
}

// Words are the words for all Services together.
func (s *Snapshot) Words() words.Vocabulary {
	return words.Among(len(s.Services), count(s.Services, func(s *Service) bool { return s.Balance }))
}

// HasRanges reports whether a Service asks for ranges of ports.
func (s *Snapshot) HasRanges() bool {
	return slices.ContainsFunc(s.Services, func(svc *Service) bool { return len(svc.Extra().Ranges) > 0 })
}

// Update holds the changes of a source since its last update. Its values are shared
// and must not be changed.
type Update struct {
	// Services are the Services that have changed, or whose slices have, with their
	// new state: the zero state if they are gone.
	Services map[ServiceName]ServiceState
	// Nodes are all Nodes, and ServiceCIDRs the union of all ServiceCIDRs as
	// [MergePrefixes] returns it.
	Nodes        []*Node
	ServiceCIDRs []netip.Prefix
	// Triggers are the known times of the changes that are new in this update (11.7).
	Triggers []Trigger
	// Partial reports that a part of the source was never read: Services that are in no
	// update may exist all the same.
	Partial bool
}

// HasRanges reports whether a Service of the update asks for ranges of ports. u may be nil.
func (u *Update) HasRanges() bool {
	if u != nil {
		for _, s := range u.Services {
			if s.Service != nil && len(s.Service.Extra().Ranges) > 0 {
				return true
			}
		}
	}
	return false
}

// Then returns the update that combines u and next. u may be nil.
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

// Update returns the snapshot as an update from nothing.
func (s *Snapshot) Update() *Update {
	return &Update{Services: s.groupStates(), Nodes: s.Nodes, ServiceCIDRs: MergePrefixes(s.ServiceCIDRs)}
}

// Since returns the changes since an earlier snapshot had the states before, and the
// states now. It compares all Services.
func (s *Snapshot) Since(before map[ServiceName]ServiceState) (u *Update, now map[ServiceName]ServiceState) {
	u = s.Update()
	now = maps.Clone(u.Services)
	for name, was := range before {
		if is, ok := now[name]; !ok {
			u.Services[name] = ServiceState{}
		} else if reflect.DeepEqual(was, is) {
			now[name] = was // and the memory of the new one is free
			delete(u.Services, name)
		}
	}
	return u, now
}

func (s *Snapshot) groupStates() map[ServiceName]ServiceState {
	out := make(map[ServiceName]ServiceState, len(s.Services))
	bySlices := GroupSlices(s.Slices)
	for _, svc := range s.Services {
		out[svc.Name] = ServiceState{svc, bySlices[svc.Name]}
	}
	return out
}

// Edit returns a snapshot that has the states that edit returns for those of all Services.
func (s *Snapshot) Edit(edit func(ServiceName, ServiceState) ServiceState) *Snapshot {
	out := *s
	out.Services, out.Slices = nil, nil
	bySlices := GroupSlices(s.Slices)
	for _, svc := range s.Services {
		state := edit(svc.Name, ServiceState{svc, bySlices[svc.Name]})
		out.Services, out.Slices = append(out.Services, state.Service), append(out.Slices, state.Slices...)
		delete(bySlices, svc.Name)
	}
	for _, slice := range s.Slices {
		if _, left := bySlices[slice.ServiceName()]; left {
			out.Slices = append(out.Slices, slice)
		}
	}
	return &out
}

// Trigger is the time of a change of a Service's endpoints.
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
