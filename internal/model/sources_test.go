package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(text string) (out []netip.Prefix) {
	for _, s := range strings.Fields(text) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestSourcesOfFrontends: 4.75 to 4.79.
func TestSourcesOfFrontends(t *testing.T) {
	const all = "all"
	lists := func(s *Sources) string {
		if s == nil {
			return all
		}
		text := all
		if s.Limited {
			text = strings.Trim(fmt.Sprint(s.Allowed), "[]")
		}
		return text + " but " + strings.Trim(fmt.Sprint(s.Denied), "[]")
	}
	for _, c := range []struct {
		name               string
		sources            *Sources
		ranges             string // of spec.loadBalancerSourceRanges
		clusterIP, lb, ip6 string // the clients of frontends
	}{
		{"none", nil, "", all, all, all},
		{"4.31 spec only", nil, "192.0.2.0/24", all, "192.0.2.0/24 but ", all},
		{"4.75 annotation only", NewSources(true, prefixes("192.0.2.0/24 fd00::/64"), nil), "", "192.0.2.0/24 but ", "192.0.2.0/24 but ", "fd00::/64 but "},
		{"4.77 both", NewSources(true, prefixes("192.0.2.0/24 10.1.0.0/16"), nil), "192.0.0.0/8 10.1.2.0/24 10.2.0.0/16", "10.1.0.0/16 192.0.2.0/24 but ", "10.1.2.0/24 192.0.2.0/24 but ", " but "},
		{"4.77 nothing in common", NewSources(true, prefixes("192.0.2.0/24"), nil), "10.0.0.0/8", "192.0.2.0/24 but ", " but ", " but "},
		{"4.77 spec without the family", NewSources(true, prefixes("192.0.2.0/24"), nil), "fd00::/64", "192.0.2.0/24 but ", "192.0.2.0/24 but ", " but "},
		{"4.77 one family", NewSources(true, prefixes("fd00::/64"), nil), "", " but ", " but ", "fd00::/64 but "},
		{"4.77 length 0", NewSources(true, prefixes("0.0.0.0/0 10.0.0.0/8"), nil), "10.0.0.0/8", all, "10.0.0.0/8 but ", " but "},
		{"4.78 empty", NewSources(true, nil, nil), "", " but ", " but ", " but "},
		{"4.76 denied", NewSources(false, nil, prefixes("10.1.0.0/16 10.0.0.0/8 fd00::1/128")), "", "all but 10.0.0.0/8", "all but 10.0.0.0/8", "all but fd00::1/128"},
		{"4.76 denied and spec", NewSources(false, nil, prefixes("10.1.0.0/16")), "10.0.0.0/8", "all but 10.1.0.0/16", "10.0.0.0/8 but 10.1.0.0/16", all},
		{"4.79 the node", NewSources(true, prefixes("192.168.7.0/24"), prefixes("192.168.7.9/32")), "", "10.96.0.10/32 192.168.7.0/24 but 192.168.7.9/32", "192.168.7.0/24 203.0.113.20/32 but 192.168.7.9/32", " but "},
		{"4.79 the node in one of both", NewSources(true, prefixes("192.168.7.0/24 10.0.0.0/8"), nil), "10.0.0.0/8", "10.0.0.0/8 192.168.7.0/24 but ", "10.0.0.0/8 but ", " but "},
		{"4.79 the node denied", NewSources(false, nil, prefixes("192.168.7.1/32")), "", "all but 10.96.0.10/32 192.168.7.1/32", "all but 192.168.7.1/32 203.0.113.20/32", all},
	} {
		s := &Service{
			ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")}, Ports: []ServicePort{{Protocol: TCP, Port: 80, NodePort: 30080}},
			External: &External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.20")}, SourceRanges: prefixes(c.ranges)}, Extras: &Extras{Sources: c.sources},
		}
		node := &Node{Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}
		for _, r := range RouteService(s, nil, NewLocality(node, Config{})) {
			want := c.clusterIP
			switch {
			case FamilyOf(r.Frontend.Address) == IPv6:
				want = c.ip6
			case r.Kind == LoadBalancerIP:
				want = c.lb
			case r.Kind == NodePort: // its address is that of the node
				want = strings.NewReplacer("10.96.0.10/32 ", "", "10.96.0.10/32", "").Replace(want)
			}
			if got := lists(r.Sources); got != want {
				t.Errorf("%s: %s: %q, want %q", c.name, r.Kind, got, want)
			}
			ranges, limited := r.SourceRanges()
			if limited && !slices.Equal(ranges, r.Sources.Allowed) || limited != (r.Sources != nil && r.Sources.Limited) {
				t.Errorf("%s: %s: ranges %v, %t", c.name, r.Kind, ranges, limited)
			}
		}
	}
}

// TestSourcesAgainstLists compares merged lists and their intersection with the ranges
// one by one.
func TestSourcesAgainstLists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(4)), byte(r.IntN(256))}) }
	list := func() (out []netip.Prefix) {
		for range r.IntN(8) {
			p, _ := address().Prefix(16 + r.IntN(17))
			out = append(out, p)
		}
		return out
	}
	in := func(list []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	admitted := 0
	for range 5000 {
		allowed, also, denied := list(), list(), list()
		s := NewSources(true, allowed, denied).intersect(also)
		for range 10 {
			a := address()
			want := in(allowed, a) && in(also, a) && !in(denied, a)
			if got := s.Admits(a); got != want {
				t.Fatalf("%v in %v and %v, not in %v: %t", a, allowed, also, denied, got)
			}
			if want {
				admitted++
			}
		}
	}
	if admitted < 1000 {
		t.Errorf("only %d clients were admitted", admitted)
	}
}
