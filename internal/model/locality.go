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
	// NoExternalIPs is that of the [Config].
	NoExternalIPs bool
}

// NewLocality applies the configuration to a node.
func NewLocality(node *Node, c Config) *Locality {
	own := *node
	if c.BindAddress.IsValid() && !c.BindAddress.IsUnspecified() {
		own.Addresses = append([]netip.Addr{c.BindAddress}, node.Addresses...)
	}
	return &Locality{Node: &own, NodePortAddresses: nodePortAddresses(&own, c), NoExternalIPs: c.NoExternalIPs}
}

// nodePortAddresses returns the addresses on which NodePorts are served
// (section 6): the first one of each family, those inside the configured
// ranges, or both. Without the first one, a family without a range is served on
// all its addresses (6.4). Loopback addresses never are (4.35).
func nodePortAddresses(node *Node, c Config) []netip.Addr {
	var out []netip.Addr
	for _, f := range Families {
		if c.NodePortPrimary || len(c.NodePortAddresses) == 0 {
			if a, ok := node.primaryAddress(f); ok && !a.IsLoopback() {
				out = append(out, a)
			}
			if len(prefixesOf(c.NodePortAddresses, f)) == 0 {
				continue
			}
		}
		candidates := c.InterfaceAddresses
		if len(candidates) == 0 {
			candidates = node.Addresses
		}
		out = append(out, inRanges(candidates, c.NodePortAddresses, f)...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// inRanges returns the addresses of family f in the ranges of that family, or
// all if there is no such range.
func inRanges(addrs []netip.Addr, ranges []netip.Prefix, f Family) []netip.Addr {
	ranges = prefixesOf(ranges, f)
	var out []netip.Addr
	for _, a := range addrs {
		if FamilyOf(a) != f || a.IsLoopback() {
			continue
		}
		if len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	return out
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
	return mergePrefixes(ranges)
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
