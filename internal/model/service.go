package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// ServiceName identifies a Service.
type ServiceName struct {
	Namespace, Name string
}

// String returns "namespace/name".
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Object returns the name as that of an object.
func (n ServiceName) Object() Object { return Object{"Service", n.Namespace, n.Name} }

// Compare orders by namespace, then name.
func (n ServiceName) Compare(o ServiceName) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Policy is a traffic policy: which endpoints a frontend may use.
type Policy uint8

const (
	// PolicyCluster uses endpoints on every node.
	PolicyCluster Policy = iota
	// PolicyLocal uses endpoints on this node only.
	PolicyLocal
)

func (p Policy) String() string {
	if p == PolicyLocal {
		return "Local"
	}
	return "Cluster"
}

// Scheduler is how new connections are spread over endpoints.
type Scheduler uint8

const (
	// DefaultScheduler is the one that the node is configured with.
	DefaultScheduler Scheduler = iota
	// RoundRobin takes the endpoints in turn.
	RoundRobin
	// Random takes one at random for each connection.
	Random
	// SourceHash takes one by a hash of the client's address.
	SourceHash
)

// schedulerNames are the names of flags and annotations.
var schedulerNames = map[string]Scheduler{"round-robin": RoundRobin, "random": Random, "source-hash": SourceHash}

func (s Scheduler) String() string {
	for name, o := range schedulerNames {
		if s == o {
			return name
		}
	}
	return "default"
}

// ParseScheduler reads the name of a scheduler.
func ParseScheduler(name string) (Scheduler, error) {
	s, ok := schedulerNames[name]
	if !ok {
		return DefaultScheduler, fmt.Errorf("unknown scheduler %q: use round-robin, random or source-hash", name)
	}
	return s, nil
}

// Service is a proxied Service. Headless, ExternalName and foreign services
// (1.2 to 1.8) never become one.
type Service struct {
	Name ServiceName
	// Created decides conflicts: the oldest Service wins (4.39). The zero time
	// means unknown and counts as youngest.
	Created time.Time
	// ClusterIPs holds at most one address of each family. Without a ClusterIP
	// of a family nothing of that family is served (1.15).
	ClusterIPs []netip.Addr
	// ExternalIPs and LoadBalancerIPs are addresses of either family, in the
	// order of the object.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	// SourceRanges are the clients of the load balancer addresses; none of a family
	// means all of that family (1.25).
	SourceRanges []netip.Prefix
	Ports        []ServicePort
	// InternalPolicy rules the ClusterIP, ExternalPolicy everything else
	// (4.11). ExternalPolicy is the effective one (1.27).
	InternalPolicy Policy
	ExternalPolicy Policy
	// AffinityTimeout keeps a client on its endpoint for that long after its
	// last new connection (5.3); zero means no affinity.
	AffinityTimeout time.Duration
	// Scheduler spreads connections over the endpoints of this Service.
	Scheduler Scheduler
	// HealthCheckNodePort is zero unless 1.29 applies.
	HealthCheckNodePort uint16
}

// ServicePort is one entry of a Service's ports.
type ServicePort struct {
	Name     string // may be empty (1.10)
	Protocol Protocol
	Port     uint16
	NodePort uint16 // zero: none (1.21)
}

// ClusterIP returns the Service's ClusterIP of family f.
func (s *Service) ClusterIP(f Family) (netip.Addr, bool) {
	for _, a := range s.ClusterIPs {
		if FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// only returns the Service as far as it is of these families; none: all. A
// family without a ClusterIP has nothing else either (1.15).
func (s *Service) only(families []Family) *Service {
	foreign := func(a netip.Addr) bool { return !slices.Contains(families, FamilyOf(a)) }
	if len(families) == 0 || !slices.ContainsFunc(s.ClusterIPs, foreign) {
		return s
	}
	limited := *s
	limited.ClusterIPs = slices.DeleteFunc(slices.Clone(s.ClusterIPs), foreign)
	return &limited
}

// hasNodePorts reports whether a port of the Service has a NodePort.
func (s *Service) hasNodePorts() bool {
	return slices.ContainsFunc(s.Ports, func(p ServicePort) bool { return p.NodePort != 0 })
}

// PortName identifies a service port: the unit for which endpoints are chosen.
type PortName struct {
	Service  ServiceName
	Port     string
	Protocol Protocol
}

// String returns "namespace/name:port", without the colon for an unnamed port.
func (n PortName) String() string {
	if n.Port == "" {
		return n.Service.String()
	}
	return n.Service.String() + ":" + n.Port
}

// Compare orders by service, port name, then protocol.
func (n PortName) Compare(o PortName) int {
	return cmp.Or(n.Service.Compare(o.Service), cmp.Compare(n.Port, o.Port), cmp.Compare(n.Protocol, o.Protocol))
}
