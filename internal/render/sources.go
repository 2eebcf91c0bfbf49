package render

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// The clients of a frontend are limited in two ways. Source ranges of the Kubernetes API
// are intervals in one set. The lists of our annotations can be long, and any Service may
// have one: they are hash sets, one for each length of a range, in which the network of
// the client is looked up. So neither a connection nor a change costs more where there are
// more ranges. A search of intervals takes 6 µs for each 1,000 ranges of all Services, and
// the kernel copies them all when one changes (measured on 6.18).
//
// A hash set of frontends stands before each of them, so that other frontends pay for one
// lookup. The sets, rules and chains for lists exist only while a frontend uses them.

// clientList is one of the two lists that a Service can have.
type clientList struct {
	frontends string     // the set of frontends that have it
	gate      optionKind // that there are any
	chain     string     // that checks its ranges
	length    optionKind // a length of ranges in it
	ranges    string     // prefix of the names of the sets of ranges, behind which is their length
	reason    model.RefusalReason
	// refusesFound means that clients in it are refused, and not the others.
	refusesFound bool
}

var (
	allowList   = clientList{nft.AllowFrontendsSet, allowing, nft.AllowChain, allowedLength, nft.AllowedPrefix, model.NotAllowed, false}
	denyList    = clientList{nft.DenyFrontendsSet, denying, nft.DenyChain, deniedLength, nft.DeniedPrefix, model.Denied, true}
	clientLists = []clientList{allowList, denyList} // in the order in which they are checked
)

func (l clientList) set(bits uint8) string { return l.ranges + strconv.Itoa(int(bits)) }

// addSources lists the clients that may connect to a frontend, and those that may not. Lists
// can be long, and seldom change: ranges that are on both sides of a change are left out.
func (c *composer) addSources(r *model.Route) {
	kept, own := c.keptSources(), r.Service.Extra().Sources != nil
	if c.other != nil && own != (c.other.Service.Extra().Sources != nil) { // they were in other sets
		kept = model.Sources{}
	}
	ranges, limited := r.SourceRanges()
	denied := r.DeniedSources()
	if !own {
		if limited {
			c.addIntervals(r.Frontend, subtractPrefixes(ranges, kept.Allowed))
		}
		return
	}
	if limited {
		c.addClients(r.Frontend, allowList, ranges, kept.Allowed)
	}
	if len(denied) > 0 {
		c.addClients(r.Frontend, denyList, denied, kept.Denied)
	}
	if (limited || len(denied) > 0) && r.Frontend.Address.IsUnspecified() {
		c.useOption(option{kind: guardedNodePorts})
	}
}

// keptSources returns the lists on the other side of a change.
func (c *composer) keptSources() model.Sources {
	if c.other == nil || c.other.Sources == nil {
		return model.Sources{}
	}
	return *c.other.Sources
}

func (c *composer) addIntervals(f model.Frontend, ranges []netip.Prefix) {
	key := nft.FrontendKey(f)
	c.add(nft.SetFor(f, nft.FirewalledSet), nft.Element{Key: key})
	if f.IsRange() {
		key = nft.RangeKey(f)
	}
	c.addPrefixes(nft.SetFor(f, nft.SourceRangesSet), key, ranges)
}

func (c *composer) addPrefixes(set string, key nft.Key, ranges []netip.Prefix) {
	for _, p := range ranges {
		key.Source, key.Bits = p.Addr(), uint8(p.Bits())
		c.add(set, nft.Element{Key: key})
	}
}

func (c *composer) addClients(f model.Frontend, l clientList, ranges, kept []netip.Prefix) {
	key, shape := nft.FrontendKey(f), nft.ShapeOf(f).InSets()
	c.useOption(option{kind: l.gate, shape: shape})
	c.add(shape.Set(l.frontends), nft.Element{Key: key})
	var lengths [129]bool
	for _, p := range ranges {
		if !lengths[p.Bits()] {
			lengths[p.Bits()] = true
			c.useOption(option{kind: l.length, shape: shape, bits: uint8(p.Bits())})
		}
	}
	for _, p := range subtractPrefixes(ranges, kept) {
		key.Source = p.Addr()
		c.add(shape.Set(l.set(uint8(p.Bits()))), nft.Element{Key: key})
	}
}

func subtractPrefixes(list, other []netip.Prefix) []netip.Prefix {
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

func (o options) prefixLengths(l clientList, of nft.Shape) (out []uint8) {
	for _, p := range slices.Backward(o.ofKind(l.length)) {
		if p.shape == of.InSets() {
			out = append(out, p.bits)
		}
	}
	return out
}

func (o options) clientListsOf(of nft.Shape) (out []clientList) {
	if of == nft.OfNode && !o.hasKind(guardedNodePorts) {
		return nil
	}
	for _, l := range clientLists {
		if slices.Contains(o, option{kind: l.gate, shape: of.InSets()}) {
			out = append(out, l)
		}
	}
	return out
}

func guardSets(of nft.Shape, o options) (out []*nft.Set) {
	for _, l := range o.clientListsOf(of) {
		out = append(out, nft.Declare(of.Set(l.frontends)))
		for _, bits := range o.prefixLengths(l, of) {
			out = append(out, nft.Declare(of.Set(l.set(bits))))
		}
	}
	return append(out, limitSets(of, o)...)
}

// guardRules drops clients that may not use a frontend (4.30, 4.75, 4.76), and what exceeds a
// limit. NodePorts with the unspecified address have no source ranges of the Kubernetes API.
//
//	ip daddr . meta l4proto . th dport @firewalled ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
//	ip daddr . meta l4proto . th dport @allow-frontends jump allow
//	ip daddr . meta l4proto . th dport @deny-frontends jump deny
//	ip daddr . meta l4proto . th dport @limited jump limits
func guardRules(s nft.Shape, observe model.Observe, o options) (rules []nft.Rule) {
	if s != nft.OfNode {
		client := append(dialled[s][:3:3], nft.SourceAddress)
		if s == nft.OfRange { // the sources have the intervals of the ports
			client[2] = nft.DestinationPort
		}
		rules = append(rules, nft.Rule{
			toShape(s, nft.FirewalledSet),
			nft.InSet{Key: client, Set: s.Set(nft.SourceRangesSet), Not: true},
			refusalVerdict(observe, model.SourceRanges, s),
		})
	}
	for _, l := range o.clientListsOf(s) {
		rules = append(rules, nft.Rule{toShape(s, l.frontends), nft.Verdict{Action: nft.Jump, Chain: s.Chain(l.chain)}})
	}
	if len(o.limitKinds(s)) > 0 {
		rules = append(rules, nft.Rule{toShape(s, nft.LimitedSet), nft.Verdict{Action: nft.Jump, Chain: s.Chain(nft.LimitChain)}})
	}
	return rules
}

// clientChains returns the chains that check lists.
//
//	ip daddr . meta l4proto . th dport . ip saddr @allowed-32 return
//	ip daddr . meta l4proto . th dport . ip saddr & 255.255.255.0 @allowed-24 return
//	drop
func clientChains(f model.Family, observe model.Observe, o options) (out []*nft.Chain) {
	for _, s := range nft.Shapes {
		for _, l := range o.clientListsOf(s) {
			c := &nft.Chain{Name: s.Chain(l.chain)}
			refuse, found := refusalVerdict(observe, l.reason, s), nft.Verdict{Action: nft.Return}
			if l.refusesFound {
				found = refuse
			}
			for _, bits := range o.prefixLengths(l, s) {
				client := append(dialled[s][:3:3], nft.Networks(f, bits))
				c.Rules = append(c.Rules, nft.Rule{nft.InSet{Key: client, Set: s.Set(l.set(bits))}, found})
			}
			if !l.refusesFound {
				c.Rules = append(c.Rules, nft.Rule{refuse})
			}
			out = append(out, c)
		}
	}
	return out
}
