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
	// ClusterCIDRs are the ranges of pod addresses. Traffic to a ClusterIP
	// from elsewhere is masqueraded (table 4-A); in a family without a range
	// none is (4.27). The first range of each family counts.
	ClusterCIDRs []netip.Prefix
}

// ClusterCIDR returns the range of pod addresses of family f.
func (c *Config) ClusterCIDR(f Family) (netip.Prefix, bool) {
	for _, p := range c.ClusterCIDRs {
		if FamilyOf(p.Addr()) == f {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

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
	// ClusterCIDRs has at most one range for each family.
	ClusterCIDRs []netip.Prefix
	// Notices tell people what cannot be served as the objects ask.
	Notices []Notice
}

// Notice is a remark about an object that does not stop the others.
type Notice struct {
	Object  string // for example "Service default/web"
	Message string
}

func (n Notice) String() string { return n.Object + ": " + n.Message }

// Resolve decides every frontend of the snapshot.
func Resolve(s *Snapshot, c Config) *Routing {
	r := &Routing{NodeName: c.NodeName, ServiceCIDRs: mergePrefixes(s.ServiceCIDRs)}
	for _, f := range Families {
		if p, ok := c.ClusterCIDR(f); ok {
			r.ClusterCIDRs = append(r.ClusterCIDRs, p.Masked())
		}
	}
	node, known := s.Node(c.NodeName)
	if !known && len(s.Nodes) > 0 {
		r.notice("Node "+c.NodeName, "not among the %d nodes given: no endpoint counts as local; name this node with --hostname-override", len(s.Nodes))
	}
	nodePorts := nodePortAddresses(node, c)
	byService := groupSlices(s.Slices)
	var claims []Route
	for _, svc := range s.Services {
		routes := RouteService(svc, byService[svc.Name], node, nodePorts)
		claims = append(claims, routes...)
		r.ClusterIPs = append(r.ClusterIPs, svc.ClusterIPs...)
		r.noticeService(svc, nodePorts)
	}
	slices.SortFunc(r.ClusterIPs, netip.Addr.Compare)
	r.ClusterIPs = slices.Compact(r.ClusterIPs)
	r.arbitrate(claims)
	slices.SortFunc(r.Notices, func(a, b Notice) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return r
}

// arbitrate gives every frontend to one of its claimants and reports the
// others. Claims of one service port for the same frontend are harmless
// (4.41).
func (r *Routing) arbitrate(claims []Route) {
	slices.SortFunc(claims, func(a, b Route) int {
		return cmp.Or(a.Frontend.Compare(b.Frontend), compareClaims(&a, &b))
	})
	for i := range claims {
		if i == 0 || claims[i].Frontend != claims[i-1].Frontend {
			r.Routes = append(r.Routes, claims[i])
			continue
		}
		winner, loser := &r.Routes[len(r.Routes)-1], &claims[i]
		if winner.Port != loser.Port {
			r.notice("Service "+loser.Port.Service.String(), "%s (%s of port %q) is served by Service %s",
				loser.Frontend, loser.Kind, loser.Port.Port, winner.Port.Service)
		}
	}
}

// noticeService reports what the Service asks for and does not get.
func (r *Routing) noticeService(s *Service, nodePorts []netip.Addr) {
	object := "Service " + s.Name.String()
	for _, ip := range s.ClusterIPs {
		served := slices.ContainsFunc(nodePorts, func(a netip.Addr) bool { return FamilyOf(a) == FamilyOf(ip) })
		wanted := slices.ContainsFunc(s.Ports, func(p ServicePort) bool { return p.NodePort != 0 })
		if wanted && !served {
			r.notice(object, "NodePorts are not served over %s: no such address of the node is known; give its Node object or --bind-address", FamilyOf(ip))
		}
	}
	if s.ExternalPolicy == PolicyLocal {
		r.notice(object, "externalTrafficPolicy Local is not implemented yet: served as Cluster, client addresses are masqueraded")
	}
	if s.AffinityTimeout > 0 {
		r.notice(object, "sessionAffinity is not implemented yet: every connection is balanced anew")
	}
	if len(s.SourceRanges) > 0 {
		r.notice(object, "loadBalancerSourceRanges are not implemented yet: the load balancer addresses are open to everybody")
	}
}

func (r *Routing) notice(object, format string, args ...any) {
	r.Notices = append(r.Notices, Notice{object, fmt.Sprintf(format, args...)})
}

// nodePortAddresses returns the addresses on which NodePorts are served
// (section 6): the first one of each family, or those inside the configured
// ranges. A family without a range is then served on all its addresses (6.4).
// Loopback addresses never are (4.35).
func nodePortAddresses(node *Node, c Config) []netip.Addr {
	addrs := node.Addresses
	if c.BindAddress.IsValid() && !c.BindAddress.IsUnspecified() {
		addrs = append([]netip.Addr{c.BindAddress}, addrs...)
	}
	var out []netip.Addr
	for _, f := range Families {
		ranges := slices.DeleteFunc(slices.Clone(c.NodePortAddresses), func(p netip.Prefix) bool { return FamilyOf(p.Addr()) != f })
		for _, a := range addrs {
			if FamilyOf(a) != f || a.IsLoopback() || slices.Contains(out, a) {
				continue
			}
			inRange := slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
			if len(ranges) > 0 && !inRange {
				continue
			}
			out = append(out, a)
			if len(c.NodePortAddresses) == 0 {
				break // the primary address only
			}
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

// mergePrefixes masks and sorts ranges and removes those that lie inside
// another: what overlaps would be refused by an interval set.
func mergePrefixes(in []netip.Prefix) []netip.Prefix {
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
