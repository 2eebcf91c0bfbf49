package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Frontend is what clients dial. It is comparable.
type Frontend struct {
	Address  netip.Addr
	Protocol Protocol
	Port     uint16
}

// String returns for example "tcp 10.96.0.1:443".
func (f Frontend) String() string {
	return fmt.Sprintf("%s %s", f.Protocol, netip.AddrPortFrom(f.Address, f.Port))
}

// Compare orders by address, protocol, then port.
func (f Frontend) Compare(o Frontend) int {
	return cmp.Or(f.Address.Compare(o.Address), cmp.Compare(f.Protocol, o.Protocol), cmp.Compare(f.Port, o.Port))
}

// Kind tells where a frontend's address comes from. Smaller kinds win
// conflicts.
type Kind uint8

const (
	ClusterIP Kind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

func (k Kind) String() string {
	switch k {
	case ClusterIP:
		return "ClusterIP"
	case ExternalIP:
		return "external IP"
	case LoadBalancerIP:
		return "load balancer IP"
	}
	return "NodePort"
}

// Route says what a frontend does with new connections.
type Route struct {
	Frontend Frontend
	Kind     Kind
	Port     PortName
	Created  time.Time // of the Service
	Policy   Policy    // the one that applies to this kind (4.11)
	Choice   Choice
}

// Decision returns what becomes of a new connection. With the external policy
// Local it speaks of pods and of the node itself, which reach every endpoint
// (table 4-B).
func (r *Route) Decision() Decision {
	if r.Kind == ClusterIP {
		return r.Choice.Decide(r.Policy)
	}
	return r.Choice.Decide(PolicyCluster)
}

// RouteService returns the routes of one Service on a node: every address it
// has, times every port. slices are those of the Service. NodePorts are served
// on nodePortAddresses. The result is a pure function of the arguments.
func RouteService(s *Service, slices []*EndpointSlice, node *Node, nodePortAddresses []netip.Addr) []Route {
	var routes []Route
	for _, f := range Families {
		clusterIP, ok := s.ClusterIP(f)
		if !ok {
			continue
		}
		for _, p := range s.Ports {
			name := PortName{s.Name, p.Name, p.Protocol}
			choice := Choose(Endpoints(name, f, slices), node)
			add := func(kind Kind, policy Policy, port uint16, addrs ...netip.Addr) {
				for _, a := range addrs {
					if FamilyOf(a) == f {
						routes = append(routes, Route{Frontend{a, p.Protocol, port}, kind, name, s.Created, policy, choice})
					}
				}
			}
			add(ClusterIP, s.InternalPolicy, p.Port, clusterIP)
			add(ExternalIP, s.ExternalPolicy, p.Port, s.ExternalIPs...)
			add(LoadBalancerIP, s.ExternalPolicy, p.Port, s.LoadBalancerIPs...)
			if p.NodePort != 0 {
				add(NodePort, s.ExternalPolicy, p.NodePort, nodePortAddresses...)
			}
		}
	}
	return routes
}

// compareClaims orders the routes that claim one frontend; the first one gets
// it. A ClusterIP cannot be taken away by an address that somebody writes into
// another Service. Otherwise a claimant with endpoints wins (4.40), then an
// address of the Service's own over a NodePort (4.37), then the oldest
// Service, then the first by name (4.39).
func compareClaims(a, b *Route) int {
	return cmp.Or(
		compareBool(a.Kind != ClusterIP, b.Kind != ClusterIP),
		compareBool(b.Decision().Verdict == Forward, a.Decision().Verdict == Forward),
		compareBool(a.Kind == NodePort, b.Kind == NodePort),
		compareAge(a.Created, b.Created),
		a.Port.Compare(b.Port),
		cmp.Compare(a.Kind, b.Kind),
	)
}

// compareAge orders the older first and an unknown age last.
func compareAge(a, b time.Time) int {
	return cmp.Or(compareBool(a.IsZero(), b.IsZero()), a.Compare(b))
}
