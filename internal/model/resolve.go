package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Config is what the administrator of the node decides.
type Config struct {
	// NodeName is the name of this node, in lower case (12.40).
	NodeName string
	// BindAddress replaces the node's address of its family; the zero value
	// and the unspecified addresses replace nothing (12.43).
	BindAddress netip.Addr
	// NodePortAddresses are the ranges of node addresses that serve NodePorts;
	// none means the first address of each family (6.2).
	NodePortAddresses []netip.Prefix
	// NodePortPrimary adds the first address of each family to the ranges.
	NodePortPrimary bool
	// NoExternalIPs leaves out the external IPs of Services (1.17).
	NoExternalIPs bool
	// InterfaceAddresses are the addresses of the node's interfaces, from which
	// the ranges choose (6.7). Without any, the addresses of the Node object
	// stand in.
	InterfaceAddresses []netip.Addr
	// DetectLocal recognises packets of pods by ClusterCIDRs, by the pod CIDRs
	// of the Node, or by PodInterface (section 7).
	DetectLocal  DetectMode
	ClusterCIDRs []netip.Prefix
	PodInterface string
	// MasqueradeAll masquerades all traffic to ClusterIPs (4.26).
	MasqueradeAll bool
	// Scheduler is the one for Services that name none.
	Scheduler Scheduler
	// BesideAnother reports that another proxy serves the Services that this one
	// does not: nothing is dropped for being in a service CIDR.
	BesideAnother bool
	// Families are those that are served; none: all. A node may lack IPv6 (12.48).
	Families []Family
	// AffinityCapacity is how many clients each family can remember; zero
	// means [DefaultAffinityCapacity].
	AffinityCapacity uint32
	// Counters counts the connections to each frontend.
	Counters bool
}

// DefaultAffinityCapacity is a million clients for each family.
const DefaultAffinityCapacity = 1_000_000

// Routing is the complete behaviour of a node: the input of the renderer.
type Routing struct {
	NodeName string
	// Routes has one route for each frontend, in the order of the frontends.
	Routes []Route
	// ClusterIPs are the ClusterIPs of all services, sorted (4.25).
	ClusterIPs []netip.Addr
	// ServiceCIDRs are the ranges whose unallocated addresses are dropped
	// (4.24), masked, sorted and without overlaps.
	ServiceCIDRs []netip.Prefix
	// Wildcards says that the address of NodePorts is the unspecified one, and
	// that they are served on NodePortAddresses, sorted, where no other frontend
	// is. Otherwise their frontends have the addresses.
	Wildcards         bool
	NodePortAddresses []netip.Addr
	// Detectors recognise pods, at most one for each family.
	Detectors map[Family]Detector
	// MasqueradeAll, Scheduler, AffinityCapacity and Counters are those of the
	// configuration, with defaults filled in.
	MasqueradeAll    bool
	Scheduler        Scheduler
	AffinityCapacity uint32
	Counters         bool
	// HealthChecks are those of Services that load balancers ask this node for,
	// sorted by name (10.15).
	HealthChecks []HealthCheck
	// WithoutLocal counts service ports by family (11.8).
	WithoutLocal map[Family]WithoutLocal
	// Notices report what cannot be served as the objects ask.
	Notices []Notice
}

// ServesNodePorts reports whether NodePorts with the unspecified address are
// served on an address. A ClusterIP has its own ports only.
func (r *Routing) ServesNodePorts(a netip.Addr) bool {
	has := func(in []netip.Addr) bool {
		_, ok := slices.BinarySearchFunc(in, a, netip.Addr.Compare)
		return ok
	}
	return has(r.NodePortAddresses) && !has(r.ClusterIPs)
}

// Notice is a remark about an object that does not stop the others.
type Notice struct {
	Object  Object
	Reason  Reason
	Message string
}

// Object names an object of Kubernetes.
type Object struct {
	Kind, Namespace, Name string // Namespace is empty for a Node
}

// String returns for example "Service default/web" or "Node node-1".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Reason is the class of a notice: one word for metrics and events.
type Reason string

const (
	// NodeUnknown: this node is not among those of the source.
	NodeUnknown Reason = "NodeUnknown"
	// Conflict: another Service has the frontend.
	Conflict Reason = "Conflict"
	// NoNodePortAddress: no address of the node serves NodePorts.
	NoNodePortAddress Reason = "NoNodePortAddress"
	// InternalError: the Service is not served because of a bug.
	InternalError Reason = "InternalError"
)

func (n Notice) String() string { return n.Object.String() + ": " + n.Message }

// Resolve decides every frontend of the snapshot.
func Resolve(s *Snapshot, c Config) *Routing {
	r := NewRouter()
	r.Configure(c, s.Nodes, s.ServiceCIDRs)
	r.SetServices(s.Update().Services)
	return r.Routing()
}

func (n Notice) compare(o Notice) int {
	return cmp.Or(cmp.Compare(n.Object.Kind, o.Object.Kind), cmp.Compare(n.Object.Namespace, o.Object.Namespace),
		cmp.Compare(n.Object.Name, o.Object.Name), cmp.Compare(n.Message, o.Message))
}

func notice(object Object, reason Reason, format string, args ...any) Notice {
	return Notice{object, reason, fmt.Sprintf(format, args...)}
}

// notices reports the Services that do not get the frontend.
func (c claims) notices() []Notice {
	var out []Notice
	for _, loser := range c.losers {
		if loser.Port != c.winner.Port { // 4.41
			out = append(out, conflict(loser.Frontend, loser, c.winner))
		}
	}
	return out
}

// conflict reports that the Service of one route does not get a frontend that
// another one has.
func conflict(f Frontend, loser, winner *Route) Notice {
	return notice(loser.Port.Service.Object(), Conflict, "%s (%s of port %q) is served by Service %s",
		f, loser.Kind, loser.Port.Port, winner.Port.Service)
}

// nodePortNotices reports NodePorts that no address of the node can serve.
func nodePortNotices(s *Service, l *Locality) []Notice {
	if !s.hasNodePorts() {
		return nil
	}
	var out []Notice
	for _, ip := range s.ClusterIPs {
		f := FamilyOf(ip)
		if _, ok := l.Node.primaryAddress(f); !ok && !slices.ContainsFunc(l.NodePortAddresses, func(a netip.Addr) bool { return FamilyOf(a) == f }) {
			out = append(out, notice(s.Name.Object(), NoNodePortAddress,
				"NodePorts are not served over %s: no such address of the node is known; give its Node object or --bind-address", f))
		}
	}
	return out
}

func groupSlices(all []*EndpointSlice) map[ServiceName][]*EndpointSlice {
	m := make(map[ServiceName][]*EndpointSlice)
	for _, s := range all {
		n := ServiceName{s.Namespace, s.Service}
		m[n] = append(m[n], s)
	}
	return m
}

// MergePrefixes returns ranges masked, sorted and without those that lie inside
// another: what overlaps would be refused by an interval set.
func MergePrefixes(in []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, len(in))
	for i, p := range in {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
