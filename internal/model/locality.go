package model

import (
	"net/netip"
	"slices"
)

// Locality holds the properties of a node on which routes depend.
type Locality struct {
	// Node has the bind address, if any, before the addresses of the Node object
	// (12.43).
	Node              *Node
	NodePortAddresses []netip.Addr // that serve NodePorts
	// Wildcards reports that a NodePort has one frontend in each family, with the
	// unspecified address: NodePortAddresses may be many, and come and go.
	Wildcards     bool
	nodePorts     []netip.Addr // of the frontends of a NodePort
	localhost     []netip.Addr // loopback addresses on which a listener serves NodePorts of TCP
	through       []netip.Addr // addresses of the node that it connects to
	own           []netip.Addr // of the node and its interfaces, sorted
	NoExternalIPs bool
}

// NewLocality applies the configuration to a node.
func NewLocality(node *Node, c Config) *Locality {
	node = c.nodeBoundTo(node)
	l := &Locality{
		Node:              node,
		NodePortAddresses: nodePortAddresses(node, c),
		Wildcards:         len(c.NodePortAddresses) > 0,
		NoExternalIPs:     c.NoExternalIPs,
		localhost:         c.Localhost(),
		own:               sortDistinct(slices.Concat(node.Addresses, c.InterfaceAddresses)),
	}
	if len(l.localhost) > 0 {
		l.through = l.throughAddresses()
	}
	l.nodePorts = l.NodePortAddresses
	if l.Wildcards {
		l.nodePorts = wildcardsOf(l.NodePortAddresses)
	}
	return l
}

func (c *Config) nodeBoundTo(node *Node) *Node {
	own := *node
	if c.BindAddress.IsValid() && !c.BindAddress.IsUnspecified() {
		own.Addresses = append([]netip.Addr{c.BindAddress}, node.Addresses...)
	}
	return &own
}

func wildcardsOf(addresses []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addresses {
		if w := Wildcard(FamilyOf(a)); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// NeedsInterfaces reports whether the routing depends on InterfaceAddresses.
func (c *Config) NeedsInterfaces() bool {
	return len(c.NodePortAddresses) > 0 || c.AnswerPing || c.Masquerades()
}

// nodePortRanges returns the ranges that serve NodePorts of one family (6.2 to 6.5):
// the configured ones, the first address of the node, or all addresses.
func (c *Config) nodePortRanges(node *Node, f Family) []netip.Prefix {
	ranges := prefixesOf(c.NodePortAddresses, f)
	switch {
	case c.servesPrimary():
		if a, ok := node.primaryAddress(f); ok {
			ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
		}
	case len(ranges) == 0:
		ranges = append(ranges, netip.PrefixFrom(Wildcard(f), 0))
	}
	return ranges
}

func (c *Config) servesPrimary() bool { return c.NodePortPrimary || len(c.NodePortAddresses) == 0 }

// servesIn reports whether an address is in any of the ranges. IPv6 link-local
// addresses never serve: the kernel does not forward packets with such a source, and
// each pod's interface has one (6.13).
func servesIn(ranges []netip.Prefix, a netip.Addr) bool {
	return !(a.Is6() && a.IsLinkLocalUnicast()) && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (c *Config) addressesIn(ranges []netip.Prefix, node *Node) []netip.Addr {
	all := c.InterfaceAddresses
	if len(all) == 0 {
		all = node.Addresses
	}
	return sortDistinct(slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !servesIn(ranges, a) }))
}

func sortDistinct(addresses []netip.Addr) []netip.Addr {
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}

// nodePortAddresses returns the addresses that serve NodePorts, sorted and without
// loopback addresses (4.35). The first address of a family serves even if no
// interface has it.
func nodePortAddresses(node *Node, c Config) []netip.Addr {
	var out []netip.Addr
	for _, f := range Families {
		if a, ok := node.primaryAddress(f); ok && c.servesPrimary() {
			out = append(out, a)
		}
		out = append(out, c.addressesIn(c.nodePortRanges(node, f), node)...)
	}
	return sortDistinct(slices.DeleteFunc(out, netip.Addr.IsLoopback))
}

func (c *Config) ServesNodePorts(a netip.Addr) bool {
	return !a.IsLoopback() && servesIn(c.nodePortRanges(&Node{}, FamilyOf(a)), a)
}

// HealthCheckAddresses returns where the health checks of Services listen, by family:
// the addresses of interfaces that serve NodePorts, including loopback. The
// unspecified address means all of a family (10.16).
func HealthCheckAddresses(node *Node, c Config) map[Family][]netip.Addr {
	node = c.nodeBoundTo(node)
	out := make(map[Family][]netip.Addr)
	for _, f := range Families {
		ranges := c.nodePortRanges(node, f)
		if out[f] = c.addressesIn(ranges, node); slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
			out[f] = []netip.Addr{Wildcard(f)}
		}
	}
	return out
}

func prefixesOf(in []netip.Prefix, f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range in {
		if FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

// HealthCheck is the answer to load balancers on the health check node port of a
// Service.
type HealthCheck struct {
	Service ServiceName
	Port    uint16
	// Endpoints is the number of addresses of ready endpoints on this node that take
	// new connections, for each family of the Service and all ports of its slices (10.20).
	Endpoints map[Family]int
}

// healthCheck counts the ready endpoints on this node from the routes of a Service,
// which exclude drained ones (3.21), and from ports that only its slices have. Terminating
// ones get traffic, but do not count: load balancers should leave the node before they are
// gone. Neither do those whose health check fails, as long as that counts for other nodes.
func healthCheck(s *Service, ss []*EndpointSlice, routes []Route, node *Node) HealthCheck {
	h := HealthCheck{s.Name, s.HealthCheckNodePort, make(map[Family]int)}
	local := make(map[netip.Addr]struct{})
	add := func(choice *Choice) {
		if allFailing(choice.Local) && !allFailing(choice.Cluster) {
			return
		}
		for _, e := range choice.Local {
			if e.Host.Ready {
				local[e.Host.Address] = struct{}{}
			}
		}
	}
	for i := range routes {
		if routes[i].isPrimary() { // others share the choice of its service port
			add(routes[i].Choice)
		}
	}
	for _, port := range s.surplusPorts(ss) {
		for _, ip := range s.primaryAddresses() {
			add(ChoosePort(s, port.Protocol, Endpoints(port, FamilyOf(ip), ss), node))
		}
	}
	for _, ip := range s.primaryAddresses() {
		h.Endpoints[FamilyOf(ip)] = 0
	}
	for a := range local {
		h.Endpoints[FamilyOf(a)]++
	}
	return h
}

// surplusPorts returns the ports of slices that their Service does not have, each once. It takes time
// in proportion to the ports of both.
func (s *Service) surplusPorts(ss []*EndpointSlice) (out []PortName) {
	known := make(map[PortName]struct{}, len(s.Ports))
	for _, p := range s.Ports {
		known[PortName{s.Name, p.Name, p.Protocol}] = struct{}{}
	}
	for _, slice := range ss {
		for _, p := range slice.Ports {
			port := PortName{s.Name, p.Name, p.Protocol}
			if _, ok := known[port]; !ok {
				known[port] = struct{}{}
				out = append(out, port)
			}
		}
	}
	return out
}

// WithoutLocal counts the service ports with a Local traffic policy whose endpoints
// are all on other nodes.
type WithoutLocal struct {
	Internal int // by internalTrafficPolicy
	External int // by externalTrafficPolicy
}

// isPrimary reports whether a route is the one that stands for its service port in a
// family: that for the ClusterIP, or else for the first load balancer address.
func (r *Route) isPrimary() bool {
	if !r.Service.NoClusterIP {
		return r.Kind == ClusterIP
	}
	a, _ := r.Service.primaryIn(FamilyOf(r.Frontend.Address))
	return a == r.Frontend.Address
}

// withoutLocal counts the service port of a route: with its primary route, of which
// there is one in each family.
func (r *Route) withoutLocal() (n WithoutLocal) {
	if !r.isPrimary() || r.Choice.Decide(PolicyLocal).Verdict != Drop {
		return n
	}
	if r.Kind == ClusterIP && r.Service.InternalPolicy == PolicyLocal {
		n.Internal = 1
	}
	if r.Service.ExternalPolicy == PolicyLocal {
		n.External = 1
	}
	return n
}
