package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/words"
)

// ServiceName identifies a Service.
type ServiceName struct {
	Namespace, Name string
}

func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

func (n ServiceName) Object() Object { return Object{"Service", n.Namespace, n.Name} }

func (n ServiceName) BalanceObject() Object { return Object{"Balance", n.Namespace, n.Name} }

func (n ServiceName) ObjectAs(isBalance bool) Object {
	if isBalance {
		return n.BalanceObject()
	}
	return n.Object()
}

// Compare orders by namespace, then name.
func (n ServiceName) Compare(o ServiceName) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Policy is a traffic policy: which endpoints a frontend may use.
type Policy uint8

const (
	PolicyCluster Policy = iota // endpoints on every node
	PolicyLocal                 // endpoints on this node only
)

func (p Policy) String() string { return [...]string{"Cluster", "Local"}[p] }

// Scheduler is how new connections are spread over endpoints.
type Scheduler uint8

const (
	DefaultScheduler Scheduler = iota // the scheduler of the node's configuration
	RoundRobin                        // endpoints in turn
	Random                            // an endpoint at random for each connection
	SourceHash                        // an endpoint by a hash of the client's address
	Maglev                            // the same, by a table that a change of the endpoints changes little
	MaglevPort                        // by a hash of the client's address and port, and such a table
)

// SchedulerNames are the names of all schedulers, from [RoundRobin] on.
var SchedulerNames = []string{"round-robin", "random", "source-hash", "maglev", "maglev-port"}

func (s Scheduler) String() string { return nameOf(s, RoundRobin, SchedulerNames, "default") }

func ParseScheduler(name string) (Scheduler, error) {
	return parseName("scheduler", name, SchedulerNames, RoundRobin)
}

// ByClient reports whether the client decides which endpoint it gets, so that the order
// of the endpoints has a meaning.
func (s Scheduler) ByClient() bool { return s >= SourceHash }

// IsMaglev reports whether the endpoints are in a table of Maglev.
func (s Scheduler) IsMaglev() bool { return s == Maglev || s == MaglevPort }

// Service is a proxied Service. Headless, ExternalName and foreign services
// (1.2 to 1.8) never become one.
type Service struct {
	Name ServiceName
	// Created decides conflicts: the oldest Service wins (4.39). It is in seconds since
	// 1970; zero means unknown and counts as youngest.
	Created int64
	// ClusterIPs holds at most one address of each family. A family without a
	// ClusterIP is not served (1.15), unless NoClusterIP is set.
	ClusterIPs []netip.Addr
	External   *External // nil: none. Most Services have only a ClusterIP.
	Extras     *Extras   // nil: none; see Extra
	Ports      []ServicePort
	// AffinityTimeout is how long a client stays on its endpoint after its last new
	// connection (5.3); zero means no affinity.
	AffinityTimeout     time.Duration
	InternalPolicy      Policy // for the ClusterIP (4.11)
	ExternalPolicy      Policy // for other addresses: the effective one (1.27)
	Scheduler           Scheduler
	ClientAddresses     ClientAddresses
	HealthCheckNodePort uint16 // zero unless 1.29 applies
	// NoClusterIP is set for a Service that is served on its load balancer addresses
	// only, in the families of these (1.40).
	NoClusterIP bool
	Balance     bool   // comes from a Balance, which messages name
	Check       *Check // health check of each endpoint; nil: none
}

func (s *Service) Object() Object {
	if s.Balance {
		return s.Name.BalanceObject()
	}
	return s.Name.Object()
}

func (s *Service) Words() words.Vocabulary { return words.Of(s.Balance) }

// ClientAddresses is whether endpoints see the addresses of clients.
type ClientAddresses uint8

const (
	DefaultClientAddresses    ClientAddresses = iota // by the kind of frontend and the policies (table 4-A)
	KeepClientAddresses                              // of all clients except the node itself
	MasqueradeClientAddresses                        // none: connections come from the node
)

// ClientAddressesNames are the names of the values, from [KeepClientAddresses] on.
var ClientAddressesNames = []string{"keep", "masquerade"}

// String returns the name, or nothing for the default.
func (c ClientAddresses) String() string {
	return nameOf(c, KeepClientAddresses, ClientAddressesNames, "")
}

// External holds the addresses of a Service for clients outside of the cluster.
type External struct {
	// ExternalIPs and LoadBalancerIPs may mix families and keep the object's order.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	// SourceRanges are the allowed clients of the load balancer addresses; none of a
	// family means all of that family (1.25).
	SourceRanges []netip.Prefix
}

// repeats reports whether a Service has an external IP as load balancer address, too: that one has
// the source ranges, so the external IP is no frontend of its own.
func (e External) repeats(kind Kind, a netip.Addr) bool {
	return kind == ExternalIP && slices.Contains(e.LoadBalancerIPs, a)
}

func (s *Service) externalOrZero() External {
	if s.External == nil {
		return External{}
	}
	return *s.External
}

// Serves reports whether clients dial the Service at an address: a ClusterIP, an
// external IP or a load balancer IP.
func (s *Service) Serves(a netip.Addr) bool {
	e := s.externalOrZero()
	return slices.Contains(s.ClusterIPs, a) || slices.Contains(e.ExternalIPs, a) || slices.Contains(e.LoadBalancerIPs, a)
}

type ServicePort struct {
	Name     string // may be empty (1.10)
	Protocol Protocol
	Port     uint16
	NodePort uint16 // zero: none (1.21)
}

func (s *Service) ClusterIP(f Family) (netip.Addr, bool) { return firstIn(f, s.ClusterIPs) }

// primaryAddresses are the addresses that determine the families of the Service: the
// ClusterIPs, or else the load balancer addresses.
func (s *Service) primaryAddresses() []netip.Addr {
	if s.NoClusterIP {
		return s.externalOrZero().LoadBalancerIPs
	}
	return s.ClusterIPs
}

// HasFamily reports whether the Service is served in a family (1.15).
func (s *Service) HasFamily(f Family) bool {
	_, ok := s.primaryIn(f)
	return ok
}

func (s *Service) primaryIn(f Family) (netip.Addr, bool) { return firstIn(f, s.primaryAddresses()) }

// restrictedTo returns the Service restricted to these families; none: all. Removing the
// addresses that determine the families is sufficient (1.15).
func (s *Service) restrictedTo(families []Family) *Service {
	foreign := func(a netip.Addr) bool { return !slices.Contains(families, FamilyOf(a)) }
	if len(families) == 0 || !slices.ContainsFunc(s.primaryAddresses(), foreign) {
		return s
	}
	limited, kept := *s, slices.DeleteFunc(slices.Clone(s.primaryAddresses()), foreign)
	if !s.NoClusterIP {
		limited.ClusterIPs = kept
		return &limited
	}
	external := s.externalOrZero()
	external.LoadBalancerIPs = kept
	limited.External = &external
	return &limited
}

// changeExtras returns a Service with other extras.
func (s *Service) changeExtras(change func(*Extras)) *Service {
	out, extras := *s, *s.Extra()
	change(&extras)
	out.Extras = &extras
	return &out
}

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
	return n.Service.Namespace + "/" + n.Service.Name + ":" + n.Port
}

// Suffix returns for example ` (port "http")`, and nothing for an unnamed port.
func (n PortName) Suffix() string {
	if n.Port == "" {
		return ""
	}
	return fmt.Sprintf(" (port %q)", n.Port)
}

// Compare orders by service, port name, then protocol.
func (n PortName) Compare(o PortName) int {
	return cmp.Or(n.Service.Compare(o.Service), cmp.Compare(n.Port, o.Port), cmp.Compare(n.Protocol, o.Protocol))
}

// BindsTogether reports whether session affinity binds a client to one server for all ports of
// the Service (5.16), as for a Balance with several. Services of Kubernetes bind it at each port
// by itself, as kube-proxy does (5.2).
func (s *Service) BindsTogether() bool {
	return s.Balance && s.AffinityTimeout > 0 && len(s.Ports) > 1 && !s.hashesAll()
}

// hashesAll reports whether all ports of a Balance with affinity have the scheduler source-hash,
// because one of them is a range, in which no client is bound (1.56).
func (s *Service) hashesAll() bool {
	return s.Balance && s.AffinityTimeout > 0 &&
		slices.ContainsFunc(s.Extra().Ranges, func(p PortRange) bool { return p.Last != 0 })
}

// MaxServerNumber is the highest number of a server, which fits into 14 bits: see [NumberServers].
const MaxServerNumber = 1<<14 - 1

// NumberServers numbers the servers behind one port of a Service, from 1 on. A server has the same
// number at all ports, as long as the servers stay: the number is a hash of its address, or the
// next free one. Servers with the same address are told apart by the order of their ports. Those
// above [MaxServerNumber] have no number.
func NumberServers(endpoints []netip.AddrPort) map[netip.AddrPort]uint16 {
	sorted := slices.SortedFunc(slices.Values(endpoints), netip.AddrPort.Compare)
	sorted = slices.Compact(sorted)
	out, taken := make(map[netip.AddrPort]uint16, len(sorted)), make(map[uint16]bool, len(sorted))
	nth := uint16(0)
	for i, e := range sorted[:min(len(sorted), MaxServerNumber)] {
		if nth++; i == 0 || sorted[i-1].Addr() != e.Addr() {
			nth = 0
		}
		h := fnv.New32a()
		h.Write(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), nth)) // returns no error
		n := uint16(h.Sum32()%MaxServerNumber) + 1
		for taken[n] {
			n = n%MaxServerNumber + 1
		}
		out[e], taken[n] = n, true
	}
	return out
}

// numberServers numbers all servers of a port of a Service that binds clients together, also those
// that take no connections, so that no number changes when they do.
func (s *Service) numberServers(endpoints []Endpoint) map[netip.AddrPort]uint16 {
	if !s.BindsTogether() {
		return nil
	}
	all := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		all[i] = e.Address()
	}
	return NumberServers(all)
}
