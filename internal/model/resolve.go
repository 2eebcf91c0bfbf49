package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/words"
)

type Config struct {
	NodeName string // in lower case (12.40)
	// BindAddress replaces the node's address of its family; the zero value and the
	// unspecified addresses replace nothing (12.43).
	BindAddress netip.Addr
	// NodePortAddresses are the ranges of node addresses that serve NodePorts; none
	// means the first address of each family (6.2), which NodePortPrimary adds.
	NodePortAddresses []netip.Prefix
	NodePortPrimary   bool
	// AnswerPing answers echo requests to addresses of Services with usable endpoints. If
	// there are LoadBalancerCIDRs, external addresses have to be in these.
	AnswerPing bool
	// LoadBalancerCIDRs are ranges of external addresses of Services: packets to them that
	// no frontend serves are refused or dropped.
	LoadBalancerCIDRs []netip.Prefix
	// Links are the networks of the node's interfaces. Their addresses are not dropped in
	// LoadBalancerCIDRs: packets to a link do not come back.
	Links         []netip.Prefix
	NoLimits      bool // the kernel cannot limit connections
	NoLocalhost   bool // do not serve NodePorts on loopback addresses
	NoExternalIPs bool // ignore the external IPs of Services (1.17)
	// InterfaceAddresses are the addresses of the node's interfaces, from which the
	// ranges select (6.7). If there are none, the Node object's addresses are used.
	InterfaceAddresses []netip.Addr
	// DetectLocal recognises packets of pods by ClusterCIDRs, by the pod CIDRs of the
	// Node, or by PodInterface (section 7).
	DetectLocal   DetectMode
	ClusterCIDRs  []netip.Prefix
	PodInterface  string
	MasqueradeAll bool // masquerade all traffic to ClusterIPs (4.26)
	// MasqueradeFrom are addresses of the node that all masquerading takes in turn, as far as
	// interfaces have them; none in a family: an address of the outgoing interface (8.8).
	MasqueradeFrom    []netip.Addr
	MasqueradePrimary bool      // the addresses of the Node, before these
	Scheduler         Scheduler // of Services that name none
	// BesideAnother reports that another proxy serves the other Services: packets to
	// unknown addresses of a service CIDR are not dropped.
	BesideAnother    bool
	Families         []Family // to serve; none: all. A node may lack IPv6 (12.48).
	AffinityCapacity uint32   // remembered clients for each family; zero: [DefaultAffinityCapacity]
	Counters         bool     // count the connections to each frontend
	EndpointCounters bool     // count the connections to each endpoint of a frontend
	Observe          Observe  // count and log refused connections
	FastPath         FastPath // of established connections
}

// DefaultAffinityCapacity is a million clients for each family.
const DefaultAffinityCapacity = 1_000_000

// Routing is the complete behaviour of a node: the input of the renderer.
type Routing struct {
	NodeName string
	// Routes has one route for each frontend, in the order of the frontends.
	Routes []Route
	// Echoes are the routes that decide about echo requests, one for each address and in
	// the order of these; none unless echo requests are answered.
	Echoes []*Route
	// AnswerFrom is the address of the node that answers them, in each family; empty:
	// they are not answered.
	AnswerFrom map[Family]netip.Addr
	// LoadBalancerCIDRs are ranges in which undefined ports of used addresses are refused, like
	// ServiceCIDRs masked, sorted and without overlaps.
	LoadBalancerCIDRs []netip.Prefix
	// UnlinkedCIDRs are the parts of them outside of the networks of interfaces, in which
	// unused addresses are dropped.
	UnlinkedCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges whose unallocated addresses are dropped
	// (4.24), masked, sorted and without overlaps.
	ServiceCIDRs []netip.Prefix
	// Wildcards reports that NodePorts have the unspecified address, and that
	// NodePortAddresses, sorted, serve them unless they have a frontend of their own.
	// Otherwise the frontends of NodePorts have these addresses.
	Wildcards         bool
	NodePortAddresses []netip.Addr
	Localhost         []netip.Addr        // where a listener serves NodePorts of TCP
	Detectors         map[Family]Detector // of pods
	// MasqueradeAll, Scheduler, AffinityCapacity, the counters and Observe are as configured,
	// or the defaults.
	MasqueradeAll    bool
	MasqueradeFrom   map[Family][]netip.Addr // that the node has, as configured
	Scheduler        Scheduler
	AffinityCapacity uint32
	Counters         bool
	EndpointCounters bool
	Observe          Observe
	HealthChecks     []HealthCheck           // sorted by name (10.15)
	WithoutLocal     map[Family]WithoutLocal // numbers of service ports (11.8)
	Notices          []Notice                // about objects that cannot be served as they ask
}

// contains reports whether a sorted list has an address.
func contains(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}

// Notice is a remark about an object that does not stop the others.
type Notice struct {
	Object  Object `json:"object"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// Object names an object of Kubernetes or of a file, or a part of the machine, which may have no name.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // empty for a Node
	Name      string `json:"name,omitempty"`
}

// Machine is the object of what concerns the machine.
func Machine() Object { return Object{Kind: "Machine"} }

// String returns for example "Service default/web" or "Node node-1". Objects that only files have are named
// without their namespace if that is the default one, as in most files.
func (o Object) String() string {
	onlyInFiles := o.Kind == "Balance" || o.Kind == "Servers"
	switch {
	case o.Name == "":
		return o.Kind
	case o.Namespace == "" || o.Namespace == "default" && onlyInFiles:
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Service returns the Service that an object is, or that a Balance becomes; false: it is another object.
func (o Object) Service() (ServiceName, bool) {
	return ServiceName{o.Namespace, o.Name}, o.Kind == "Service" || o.Kind == "Balance"
}

func (n Notice) String() string { return n.Object.String() + ": " + n.Message }

// Route returns a router that has decided every frontend of the snapshot.
func (s *Snapshot) Route(c Config) *Router {
	r := NewRouter()
	r.Configure(c, s.Nodes, s.ServiceCIDRs)
	r.SetServices(s.Update().Services)
	return r
}

// Resolve decides every frontend of the snapshot.
func Resolve(s *Snapshot, c Config) *Routing { return s.Route(c).Routing() }

func (n Notice) compare(o Notice) int {
	return cmp.Or(cmp.Compare(n.Object.Kind, o.Object.Kind), cmp.Compare(n.Object.Namespace, o.Object.Namespace),
		cmp.Compare(n.Object.Name, o.Object.Name), cmp.Compare(n.Message, o.Message))
}

func newNotice(object Object, reason Reason, format string, args ...any) Notice {
	return Notice{object, reason, words.Of(object.Kind == "Balance").Sprintf(format, args...)}
}

func nodePortNotices(s *Service, l *Locality) []Notice {
	if !s.hasNodePorts() {
		return nil
	}
	var out []Notice
	for _, ip := range s.ClusterIPs { // without one, there are no NodePorts
		f := FamilyOf(ip)
		_, own := l.Node.primaryAddress(f)
		if _, any := firstIn(f, l.NodePortAddresses); !own && !any {
			out = append(out, newNotice(s.Object(), NoNodePortAddress,
				"NodePorts are not served over %s: no such address of the node is known; give its Node object or --bind-address", f))
		}
	}
	return out
}

// GroupSlices returns slices by their Service, which may not be there.
func GroupSlices(all []*EndpointSlice) map[ServiceName][]*EndpointSlice {
	m := make(map[ServiceName][]*EndpointSlice)
	for _, s := range all {
		n := s.ServiceName()
		m[n] = append(m[n], s)
	}
	return m
}

// MergePrefixes returns ranges masked, sorted and without those inside another one:
// an interval set would refuse overlaps.
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

// Outside returns the parts of a range that are in none of the others, sorted.
func Outside(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	i := slices.IndexFunc(others, p.Overlaps)
	switch {
	case i < 0:
		return []netip.Prefix{p}
	case others[i].Bits() <= p.Bits():
		return nil
	}
	first := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	second := p.Addr().AsSlice()
	second[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(second)
	return append(Outside(first, others), Outside(netip.PrefixFrom(a, first.Bits()), others)...)
}
