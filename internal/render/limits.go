package render

import (
	"cmp"
	"fmt"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Connection limits are checked in a chain that only packets to frontends with a
// limit reach. The limits of frontends are elements with a limit each. Those of clients
// need an element for each client, which packets add: the limit is in the rule that adds
// it, so there is a rule, a set of frontends and a set of clients for each value in use.
//
// A packet that exceeds a limit is counted for its frontend and dropped: a client that
// tries again gets its turn when there is room. More clients than [budget.LimitedClients] are
// served without their limit: addresses can be forged, and those who forge them must not keep
// others out, nor fill the memory.

// limit is a limit in use. It is comparable; that of clients has its value.
type limit struct {
	kind  model.LimitKind
	value nft.Limit // of clients
}

func (l limit) compare(o limit) int {
	a, b := l.value, o.value
	return cmp.Or(cmp.Compare(l.kind, o.kind), cmp.Compare(a.Connections, b.Connections),
		cmp.Compare(a.Rate.Unit, b.Rate.Unit), cmp.Compare(a.Rate.Amount, b.Rate.Amount), cmp.Compare(a.Rate.Burst, b.Rate.Burst))
}

// limitsOf returns the limits of a Service, by kind.
func limitsOf(l model.Limits) map[model.LimitKind]nft.Limit {
	all := map[model.LimitKind]nft.Limit{
		model.LimitClientRate: {Rate: l.RatePerClient}, model.LimitRate: {Rate: l.Rate},
		model.LimitClientConnections: {Connections: l.ConnectionsPerClient}, model.LimitConnections: {Connections: l.Connections},
	}
	for k, v := range all {
		if v == (nft.Limit{}) {
			delete(all, k)
		}
	}
	return all
}

// frontends returns the name of the set of frontends with the limit.
func (l limit) frontends() string {
	switch l.kind {
	case model.LimitRate:
		return nft.RateLimitsSet
	case model.LimitConnections:
		return nft.ConnectionLimitsSet
	}
	return "client-" + l.suffix()
}

// clients returns the name of the set of clients.
func (l limit) clients() string { return "clients-of-" + l.suffix() }

func (l limit) suffix() string {
	if r := l.value.Rate; l.kind == model.LimitClientRate {
		return fmt.Sprintf("rate-%d-%s-%d", r.Amount, r.Unit, r.Burst)
	}
	return fmt.Sprintf("connections-%d", l.value.Connections)
}

// limits lists the limits of a frontend.
func (c *composer) limits(r *model.Route) {
	all := r.Service.Extra().Limits
	if all == (model.Limits{}) {
		return
	}
	of, key := limiting, nft.FrontendKey(r.Frontend)
	if r.Frontend.IsRange() {
		of = limitingRanges
	}
	add := func(set string, e nft.Element) { c.add(nft.SetFor(r.Frontend, set), e) }
	values := limitsOf(all)
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		value, ok := values[kind]
		if !ok {
			continue
		}
		l, e := limit{kind: kind}, nft.Element{Key: key}
		if kind == model.LimitRate || kind == model.LimitConnections {
			e.Value = nft.LimitValue(value)
		} else {
			l.value = value
		}
		c.use(option{kind: of, limit: l})
		add(l.frontends(), e)
		add(nft.OverSet(kind), nft.Element{Key: key})
	}
	add(nft.LimitedSet, nft.Element{Key: key})
	if r.Frontend.Address.IsUnspecified() {
		c.use(option{kind: limitedNodePorts})
	}
}

// limits returns the limits of a kind of option in use, sorted.
func (o options) limits(of optionKind) []limit {
	var out []limit
	for _, p := range o {
		if p.kind == of {
			out = append(out, p.limit)
		}
	}
	return out
}

// limitSets returns the empty sets for sorted limits of frontends of a type.
func limitSets(frontend []nft.Datatype, prefix string, all []limit) []*nft.Set {
	if len(all) == 0 {
		return nil
	}
	out := []*nft.Set{{Name: prefix + nft.LimitedSet, Key: frontend}}
	for i, l := range all {
		s := &nft.Set{Name: prefix + l.frontends(), Key: frontend}
		switch l.kind {
		case model.LimitRate:
			s.Limits = nft.RateLimits
		case model.LimitConnections:
			s.Limits = nft.ConnectionLimits
		default:
			out = append(out, &nft.Set{Name: prefix + l.clients(), Key: append(frontend[:3:3], nft.Source),
				Dynamic: true, Timeless: l.kind == model.LimitClientConnections, Size: budget.LimitedClients})
		}
		out = append(out, s)
		if i == 0 || all[i-1].kind != l.kind {
			out = append(out, &nft.Set{Name: prefix + nft.OverSet(l.kind), Key: frontend, Counters: true})
		}
	}
	return out
}

// limitsFor returns the limits of frontends with a key, and the chain that checks them.
func limitsFor(frontend nft.Concat, o options) (chain string, all []limit) {
	switch {
	case isRange(frontend):
		return nft.RangePrefix + nft.LimitChain, o.limits(limitingRanges)
	case frontend[0] == nft.DestinationAddress:
		return nft.LimitChain, o.limits(limiting)
	case o.has(limitedNodePorts):
		return nft.NodePrefix + nft.LimitChain, o.limits(limiting)
	}
	return "", nil
}

// toLimits sends packets to frontends with a limit to the chain of limits.
//
//	ip daddr . meta l4proto . th dport @limited jump limits
func toLimits(frontend nft.Concat, o options) []nft.Rule {
	chain, all := limitsFor(frontend, o)
	if len(all) == 0 {
		return nil
	}
	return []nft.Rule{{
		nft.InSet{Key: frontend, Set: counterpart(frontend, nft.LimitedSet)},
		nft.Verdict{Action: nft.Jump, Chain: chain},
	}}
}

// limitChains returns the chains that drop what exceeds sorted limits. The last lookup
// counts.
//
//	ip daddr . meta l4proto . th dport @client-rate-10-second-20
//	  update @clients-of-rate-10-second-20 { ip daddr . meta l4proto . th dport . ip saddr timeout 2s limit rate over 10/second burst 20 packets }
//	  ip daddr . meta l4proto . th dport @over-client-rate drop
//	ip daddr . meta l4proto . th dport @rate-limits ip daddr . meta l4proto . th dport @over-rate drop
func limitChains(o options) []*nft.Chain {
	var out []*nft.Chain
	for _, key := range []nft.Concat{dialled, dialledNode, dialledRange} {
		name, all := limitsFor(key, o)
		if len(all) == 0 {
			continue
		}
		chain, in := &nft.Chain{Name: name}, func(set string) nft.InSet { return nft.InSet{Key: key, Set: counterpart(key, set)} }
		for _, l := range all {
			rule := nft.Rule{in(l.frontends())}
			if l.value != (nft.Limit{}) {
				rule = append(rule, nft.OverLimit{Set: counterpart(key, l.clients()), Key: append(key[:3:3], nft.SourceAddress), Limit: l.value})
			}
			chain.Rules = append(chain.Rules, append(rule, in(nft.OverSet(l.kind)), nft.Verdict{Action: nft.Drop}))
		}
		out = append(out, chain)
	}
	return out
}
