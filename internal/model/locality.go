package model

import (
	"net/netip"
	"slices"
)

// Locality is what a node knows about itself, as far as routes depend on it.
type Locality struct {
	// Node has its own addresses first: those of the Node object, with the
	// bind address in the place of the one of its family (12.43).
	Node *Node
	// NodePortAddresses are the addresses that serve NodePorts.
	NodePortAddresses []netip.Addr
	// Wildcards says that a NodePort is one frontend of each family, whose address
	// is the unspecified one, however many NodePortAddresses there are: they may be
	// many, and come and go.
	Wildcards bool
	// nodePorts are the addresses of the frontends of a NodePort.
	nodePorts []netip.Addr
	// NoExternalIPs is that of the [Config].
	NoExternalIPs bool
}

// NewLocality applies the configuration to a node.
func NewLocality(node *Node, c Config) *Locality {
	own := *node
	if c.BindAddress.IsValid() && !c.BindAddress.IsUnspecified() {
		own.Addresses = append([]netip.Addr{c.BindAddress}, node.Addresses...)
	}
	l := &Locality{
		Node:              &own,
		NodePortAddresses: nodePortAddresses(&own, c),
		Wildcards:         len(c.NodePortAddresses) > 0,
		NoExternalIPs:     c.NoExternalIPs,
	}
	l.nodePorts = l.NodePortAddresses
	if l.Wildcards {
		l.nodePorts = wildcards(l.NodePortAddresses)
	}
	return l
}

// wildcards returns the unspecified address of each family that has one of the
// addresses.
func wildcards(addresses []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addresses {
		if w := Wildcard(FamilyOf(a)); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// nodePortAddresses returns the addresses on which NodePorts are served
// (section 6): the first one of each family, those that the configured ranges
// choose, or both. Loopback addresses never are (4.35).
func nodePortAddresses(node *Node, c Config) []netip.Addr {
	var out []netip.Addr
	if c.NodePortPrimary || len(c.NodePortAddresses) == 0 {
		for _, f := range Families {
			if a, ok := node.primaryAddress(f); ok && !a.IsLoopback() {
				out = append(out, a)
			}
		}
	}
	candidates := c.InterfaceAddresses
	if len(candidates) == 0 {
		candidates = node.Addresses
	}
	for _, a := range candidates {
		if c.ServesNodePorts(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// ServesNodePorts reports whether NodePorts are served on an address of an
// interface: it lies in the ranges of its family, or there is no such range
// (6.4), unless the first address of each family serves them. Without any range
// the addresses of interfaces do not matter.
//
// A client has no use for an IPv6 link-local address: the kernel does not
// forward a packet with such a source, and each pod's interface has one.
func (c *Config) ServesNodePorts(a netip.Addr) bool {
	if len(c.NodePortAddresses) == 0 || a.IsLoopback() || a.Is6() && a.IsLinkLocalUnicast() {
		return false
	}
	all := !c.NodePortPrimary
	for _, p := range c.NodePortAddresses {
		if FamilyOf(p.Addr()) == FamilyOf(a) {
			if p.Contains(a) {
				return true
			}
			all = false
		}
	}
	return all
}

// sourceRanges returns who may use the load balancer addresses of a Service in
// one family. Where the node itself may, so may these addresses: a packet of
// the node to an address that it holds carries that address as its source
// (4.33).
func (l *Locality) sourceRanges(s *Service, f Family) []netip.Prefix {
	ranges := prefixesOf(s.SourceRanges, f)
	if own, ok := l.Node.primaryAddress(f); ok && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(own) }) {
		for _, a := range s.LoadBalancerIPs {
			if FamilyOf(a) == f {
				ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return MergePrefixes(ranges)
}

// prefixesOf returns the prefixes of one family.
func prefixesOf(in []netip.Prefix, f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range in {
		if FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}
