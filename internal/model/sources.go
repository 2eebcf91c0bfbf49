package model

import (
	"net/netip"
	"slices"
	"sort"
)

// Sources are the clients that may connect, by the addresses that their packets come
// from. They must not be changed. Nil means all clients. The ranges are sorted, and none
// is inside another one of the list.
type Sources struct {
	// Limited means that only clients in Allowed may connect: none, if that is empty.
	Limited bool
	Allowed []netip.Prefix
	// Denied are the clients that may not connect, even if they are in Allowed.
	Denied []netip.Prefix
}

// NewSources returns the sources for lists in any order, or nil if they exclude no client.
func NewSources(limited bool, allowed, denied []netip.Prefix) *Sources {
	if !limited && len(denied) == 0 {
		return nil
	}
	s := &Sources{Limited: limited, Denied: MergePrefixes(denied)}
	if limited {
		s.Allowed = MergePrefixes(allowed)
	}
	return s
}

func (s *Sources) Admits(client netip.Addr) bool {
	return s == nil || (!s.Limited || coversAddress(s.Allowed, client)) && !coversAddress(s.Denied, client)
}

// Equal reports whether both exclude the same clients.
func (s *Sources) Equal(o *Sources) bool {
	if s == nil || o == nil || s == o {
		return s == o
	}
	return s.Limited == o.Limited && slices.Equal(s.Allowed, o.Allowed) && slices.Equal(s.Denied, o.Denied)
}

// inFamily returns the sources of one family. A range of length 0 is no limit. It copies no
// list: they can be long, and are needed whenever an endpoint of the Service changes.
func (s *Sources) inFamily(f Family) *Sources {
	if s == nil {
		return nil
	}
	out := &Sources{Limited: s.Limited, Allowed: ofFamily(s.Allowed, f), Denied: ofFamily(s.Denied, f)}
	if len(out.Allowed) > 0 && out.Allowed[0].Bits() == 0 {
		out.Limited, out.Allowed = false, nil
	}
	if !out.Limited && len(out.Denied) == 0 {
		return nil
	}
	return out
}

// ofFamily returns the ranges of one family in a merged list, which has IPv4 first.
func ofFamily(merged []netip.Prefix, f Family) []netip.Prefix {
	n := sort.Search(len(merged), func(i int) bool { return merged[i].Addr().Is6() })
	if f == IPv4 {
		return merged[:n:n]
	}
	return merged[n:]
}

func (s *Sources) intersect(ranges []netip.Prefix) *Sources {
	switch {
	case s == nil:
		return NewSources(true, ranges, nil)
	case !s.Limited:
		return &Sources{true, MergePrefixes(ranges), s.Denied}
	}
	return &Sources{true, intersectPrefixes(MergePrefixes(ranges), s.Allowed), s.Denied}
}

// with returns the sources with some addresses of the node, which are treated like the
// address that the node has as a client: packets of the node to one of them have it as
// their source (4.33).
func (s *Sources) with(node netip.Addr, own ...netip.Addr) *Sources {
	if s == nil {
		return nil
	}
	allowed, denied := s.Limited && coversAddress(s.Allowed, node), coversAddress(s.Denied, node)
	if !allowed && !denied {
		return s
	}
	var hosts []netip.Prefix
	for _, a := range own {
		hosts = append(hosts, netip.PrefixFrom(a, a.BitLen()))
	}
	out := *s
	if allowed {
		out.Allowed = MergePrefixes(slices.Concat(s.Allowed, hosts))
	}
	if denied {
		out.Denied = MergePrefixes(slices.Concat(s.Denied, hosts))
	}
	return &out
}

// intersectPrefixes returns the intersection of two merged lists: two ranges are apart, or one of
// them is inside the other one.
func intersectPrefixes(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	inside := func(in, of []netip.Prefix) {
		for _, p := range in {
			if q, ok := findCovering(of, p.Addr()); ok && q.Bits() <= p.Bits() {
				out = append(out, p)
			}
		}
	}
	inside(a, b)
	inside(b, a)
	return MergePrefixes(out)
}

func coversAddress(merged []netip.Prefix, a netip.Addr) bool {
	_, ok := findCovering(merged, a)
	return ok
}

func findCovering(merged []netip.Prefix, a netip.Addr) (netip.Prefix, bool) {
	i := sort.Search(len(merged), func(i int) bool { return a.Less(merged[i].Addr()) })
	if i == 0 || !merged[i-1].Contains(a) {
		return netip.Prefix{}, false
	}
	return merged[i-1], true
}

// Annotations of a Service that list clients, and the fields of a Balance that do.
const (
	SourceRangesAnnotation  = "nftproxy.dev/source-ranges"
	DeniedSourcesAnnotation = "nftproxy.dev/denied-sources"
	loadBalancerField       = "spec.loadBalancerSourceRanges"
	balanceClientsField     = "clients"
	balanceDenyField        = "deny"
)

type SourceList struct {
	Field  string
	Denies bool // clients in the list; otherwise, it denies all others
	Ranges []netip.Prefix
}

// Excludes reports whether the list keeps a client from connecting.
func (l SourceList) Excludes(client netip.Addr) bool {
	in := slices.ContainsFunc(l.Ranges, func(p netip.Prefix) bool { return p.Contains(client) })
	return in == l.Denies
}

func (s *Service) SourceLists(kind Kind, f Family) (out []SourceList) {
	allowed, denied, clients := SourceRangesAnnotation, DeniedSourcesAnnotation, loadBalancerField
	if s.Balance {
		denied, clients = balanceDenyField, balanceClientsField
	}
	if ranges := prefixesOf(s.externalOrZero().SourceRanges, f); kind == LoadBalancerIP && len(ranges) > 0 {
		out = append(out, SourceList{clients, false, ranges})
	}
	own := s.Extra().Sources.inFamily(f)
	if own != nil && own.Limited {
		out = append(out, SourceList{allowed, false, own.Allowed})
	}
	if own != nil && len(own.Denied) > 0 {
		out = append(out, SourceList{denied, true, own.Denied})
	}
	return out
}

type familySources struct {
	locality      *Locality
	family        Family
	all           *Sources // of all frontends
	loadBalancers *Sources // of load balancer addresses, these included (4.33)
}

func (l *Locality) sourcesOf(s *Service, f Family) familySources {
	external := s.externalOrZero()
	all := s.Extra().Sources.inFamily(f)
	if all == nil && len(external.SourceRanges) == 0 {
		return familySources{}
	}
	out := familySources{l, f, all, all}
	if ranges := prefixesOf(external.SourceRanges, f); len(ranges) > 0 {
		out.loadBalancers = all.intersect(ranges)
	}
	if node, ok := l.Node.primaryAddress(f); ok {
		own := slices.DeleteFunc(slices.Clone(external.LoadBalancerIPs), func(a netip.Addr) bool { return FamilyOf(a) != f })
		out.loadBalancers = out.loadBalancers.with(node, own...)
	}
	return out
}

func (s familySources) clientsOf(kind Kind, a netip.Addr) *Sources {
	switch {
	case kind == LoadBalancerIP:
		return s.loadBalancers
	case s.all == nil || a.IsUnspecified():
		return s.all
	}
	node, ok := s.locality.Node.primaryAddress(s.family)
	if !ok {
		return s.all
	}
	return s.all.with(node, a)
}
