package render

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// The clients of a frontend are limited by two sets of ranges: those that may connect,
// and those that may not. A hash set of frontends stands before each of them, so that
// other frontends pay for one lookup and no search of intervals. The second pair of sets
// exists only while a frontend uses it.

// sources lists the clients that may connect to a frontend, and those that may not. Lists
// can be long, and seldom change: ranges that are on both sides of a change are left out.
func (c *composer) sources(r *model.Route) {
	kept := c.keptSources()
	ranges, limited := r.SourceRanges()
	if limited {
		c.clients(r.Frontend, nft.FirewalledSet, nft.SourceRangesSet, without(ranges, kept.Allowed))
	}
	denied := r.DeniedSources()
	if len(denied) > 0 {
		c.use(option{kind: denying})
		c.clients(r.Frontend, nft.DenyFrontendsSet, nft.DeniedSourcesSet, without(denied, kept.Denied))
	}
	if (limited || len(denied) > 0) && r.Frontend.Address.IsUnspecified() {
		c.use(option{kind: guardedNodePorts})
	}
}

// keptSources returns the lists on the other side of a change.
func (c *composer) keptSources() model.Sources {
	if c.other == nil || c.other.Sources == nil {
		return model.Sources{}
	}
	return *c.other.Sources
}

// without returns the ranges of a sorted list that are not in another one.
func without(list, other []netip.Prefix) []netip.Prefix {
	if len(other) == 0 {
		return list
	}
	var out []netip.Prefix
	for _, p := range list {
		for len(other) > 0 && other[0].Compare(p) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != p {
			out = append(out, p)
		}
	}
	return out
}

// clients adds a frontend to a set of frontends, and its ranges to a set of ranges.
func (c *composer) clients(f model.Frontend, frontends, set string, ranges []netip.Prefix) {
	key := nft.FrontendKey(f)
	frontends, set = listed(f, frontends), listed(f, set)
	c.add(frontends, nft.Element{Key: key})
	if f.IsRange() {
		key = nft.RangeKey(f)
	}
	for _, p := range ranges {
		key.Source, key.Bits = p.Addr(), uint8(p.Bits())
		c.add(set, nft.Element{Key: key})
	}
}

// denyingSets returns the empty sets for denied sources.
func denyingSets(o options) []*nft.Set {
	if !o.has(denying) {
		return nil
	}
	out := []*nft.Set{
		{Name: nft.DenyFrontendsSet, Key: frontend},
		{Name: nft.DeniedSourcesSet, Key: append(frontend[:3:3], nft.Source), Interval: true},
	}
	if o.has(ranged) {
		out = append(out,
			&nft.Set{Name: nft.RangePrefix + nft.DenyFrontendsSet, Key: rangeFrontend},
			&nft.Set{Name: nft.RangePrefix + nft.DeniedSourcesSet, Key: rangeSource, Interval: true})
	}
	return out
}

// firewall drops clients that may not use a frontend (4.30, 4.75, 4.76).
//
//	ip daddr . meta l4proto . th dport @firewalled ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
//	ip daddr . meta l4proto . th dport @deny-frontends ip daddr . meta l4proto . th dport . ip saddr @denied-sources drop
func firewall(frontend nft.Concat, o options) []nft.Rule {
	client := append(frontend[:3:3], nft.SourceAddress)
	if isRange(frontend) { // the intervals of the ports are those of the sources
		client[2] = nft.DestinationPort
	}
	rules := []nft.Rule{{
		nft.InSet{Key: frontend, Set: counterpart(frontend, nft.FirewalledSet)},
		nft.InSet{Key: client, Set: counterpart(frontend, nft.SourceRangesSet), Not: true},
		nft.Verdict{Action: nft.Drop},
	}}
	if o.has(denying) {
		rules = append(rules, nft.Rule{
			nft.InSet{Key: frontend, Set: counterpart(frontend, nft.DenyFrontendsSet)},
			nft.InSet{Key: client, Set: counterpart(frontend, nft.DeniedSourcesSet)},
			nft.Verdict{Action: nft.Drop},
		})
	}
	return rules
}

// nodeFirewall is the same for NodePorts with the unspecified address. Only these have
// passed the rules before it without a lookup of their key.
func nodeFirewall(o options) []nft.Rule {
	if !o.has(guardedNodePorts) {
		return nil
	}
	return firewall(dialledNode, o)
}
