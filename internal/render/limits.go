package render

import (
	"cmp"
	"fmt"
	"regexp"
	"unique"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// Connection limits are checked in a chain that only packets to frontends with a
// limit reach. The limits of frontends are elements with a limit each. The limits of clients
// need an element for each client, which packets add: the limit is in the rule that adds
// it, so there is a chain for each. It has a set of clients of its own: clients of one Service
// must not use up the room of another one. A map leads from the frontends to their chain, so that a
// connection passes the rules for its own limit alone, and a further limit is a chain, a set
// and elements, like a lane.
//
// A packet that exceeds a limit is counted for its frontend and dropped: a client that
// tries again gets its turn when there is room. More clients than [budget.LimitedClients] are
// served without their limit, and counted for the frontend: addresses can be forged, and those who
// forge them must not keep others out, nor fill the memory.

// clientLimit is a limit of the clients of a Service. It is comparable.
type clientLimit struct {
	kind    model.LimitKind
	value   nft.Limit
	shape   nft.Shape
	service unique.Handle[model.ServiceName]
}

func (l clientLimit) compare(o clientLimit) int {
	a, b := l.value, o.value
	return cmp.Or(cmp.Compare(l.shape, o.shape), cmp.Compare(l.kind, o.kind), cmp.Compare(a.Connections, b.Connections),
		cmp.Compare(a.Rate.Unit, b.Rate.Unit), cmp.Compare(a.Rate.Amount, b.Rate.Amount), cmp.Compare(a.Rate.Burst, b.Rate.Burst),
		l.ownerService().Compare(o.ownerService()))
}

// ownerService returns the Service; the zero value has none.
func (l clientLimit) ownerService() (s model.ServiceName) {
	if l != (clientLimit{}) {
		s = l.service.Value()
	}
	return s
}

// chainName returns the name of the chain, for example "client-rate-10-second-20-default/web".
func (l clientLimit) chainName() string { return l.shape.Chain("client-" + l.nameSuffix()) }

func (l clientLimit) clientSet() string {
	return nft.SetID{Name: "clients-of-" + l.nameSuffix(), Shape: l.shape}.String()
}

// nameSuffix returns what the names of the chain and of the set end with.
func (l clientLimit) nameSuffix() string {
	if r := l.value.Rate; l.kind == model.LimitClientRate {
		return fmt.Sprintf("rate-%d-%s-%d-%s", r.Amount, r.Unit, r.Burst, nameIn(l.ownerService()))
	}
	return fmt.Sprintf("connections-%d-%s", l.value.Connections, nameIn(l.ownerService()))
}

// plainName matches the name of a Service that nft reads as a part of a name of nf_tables, and that is short enough.
var plainName = regexp.MustCompile(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,63}$`)

// nameIn returns what names a Service in a name of nf_tables: names in files may have other characters than
// nft reads, and be longer.
func nameIn(s model.ServiceName) string {
	if text := s.String(); plainName.MatchString(text) {
		return text
	}
	return fmt.Sprintf("%016x", placement.NewHash(s.Namespace, s.Name).MixedSum())
}

// limitChain returns the chain that drops what exceeds the limit, and counts connections of clients that are not in the
// set afterwards: it was full. The last lookup of a rule counts.
//
//	update @clients-of-rate-10-second-20-default/web { ip daddr . meta l4proto . th dport . ip saddr timeout 2s limit rate over 10/second burst 20 packets }
//	  ip daddr . meta l4proto . th dport @over-client-rate drop
//	ip daddr . meta l4proto . th dport . ip saddr != @clients-of-rate-10-second-20-default/web ip daddr . meta l4proto . th dport @full-client-rate
func (l clientLimit) limitChain(observe model.Observe) *nft.Chain {
	key := append(dialled[l.shape][:3:3], nft.SourceAddress)
	return &nft.Chain{Name: l.chainName(), Rules: []nft.Rule{
		{nft.OverLimit(l.clientSet(), key, l.value), toShape(l.shape, nft.OverSet(l.kind)), refusalVerdict(observe, model.OverReason(l.kind), l.shape)},
		{nft.InSet{Key: key, Set: l.clientSet(), Not: true}, toShape(l.shape, nft.FullSet(l.kind))},
	}}
}

// set returns the set of clients. The kernel makes room at once for as many elements as the lower 16 bits of the size
// say: none with 65,536, and 2 MiB with 65,535, which is also what nft lists, and loads again, for a set without a size.
func (l clientLimit) set() *nft.Set {
	return declareDynamic(l.clientSet(), budget.LimitedClients, l.kind == model.LimitClientConnections)
}

func frontendsOf(k model.LimitKind) string {
	return [...]string{
		model.LimitClientRate: nft.ClientRatesMap, model.LimitRate: nft.RateLimitsSet,
		model.LimitClientConnections: nft.ClientConnectionsMap, model.LimitConnections: nft.ConnectionLimitsSet,
	}[k]
}

func (c *composer) addLimits(of model.ServiceName, f model.Frontend, all model.Limits) {
	if all == (model.Limits{}) {
		return
	}
	key, shape := nft.FrontendKey(f), nft.ShapeOf(f)
	if shape == nft.OfNode {
		c.useOption(option{kind: limitedNodePorts})
	}
	add := func(set string, e nft.Element) { c.add(shape.Set(set), e) }
	for k := range model.LimitKinds {
		kind := model.LimitKind(k)
		var value nft.Limit
		value.Rate, value.Connections = all.Of(kind)
		if value == (nft.Limit{}) {
			continue
		}
		c.useOption(option{kind: limiting, shape: shape.InSets(), limit: kind})
		e := nft.Element{Key: key, Value: nft.LimitValue(value)}
		if kind.OfClients() {
			l := clientLimit{kind, value, shape, unique.Make(of)}
			add(nft.FullSet(kind), nft.Element{Key: key})
			c.part.lanes = append(c.part.lanes, laneUse{limits: l})
			e.Value = nft.Value{Verdict: nft.Verdict{Action: nft.Jump, Chain: l.chainName()}}
		}
		add(frontendsOf(kind), e)
		add(nft.OverSet(kind), nft.Element{Key: key})
	}
	add(nft.LimitedSet, nft.Element{Key: key})
}

func (o options) limitKinds(s nft.Shape) (out []model.LimitKind) {
	if s == nft.OfNode && !o.hasKind(limitedNodePorts) {
		return nil
	}
	for _, p := range o.ofKind(limiting) {
		if p.shape == s.InSets() {
			out = append(out, p.limit)
		}
	}
	return out
}

func limitSets(of nft.Shape, o options) (out []*nft.Set) {
	for i, kind := range o.limitKinds(of) {
		if i == 0 {
			out = append(out, nft.Declare(of.Set(nft.LimitedSet)))
		}
		s := nft.Declare(of.Set(frontendsOf(kind)))
		switch kind {
		case model.LimitRate:
			s.Limits = nft.RateLimits
		case model.LimitConnections:
			s.Limits = nft.ConnectionLimits
		}
		if out = append(out, s, declareCounted(of.Set(nft.OverSet(kind)), true)); kind.OfClients() {
			out = append(out, declareCounted(of.Set(nft.FullSet(kind)), true))
		}
	}
	return out
}

// limitChains returns the chains that check the limits of a frontend. The last lookup of
// a rule counts.
//
//	ip daddr . meta l4proto . th dport vmap @client-rates
//	ip daddr . meta l4proto . th dport @rate-limits ip daddr . meta l4proto . th dport @over-rate drop
func limitChains(observe model.Observe, o options) []*nft.Chain {
	var out []*nft.Chain
	for _, s := range nft.Shapes {
		chain := &nft.Chain{Name: s.Chain(nft.LimitChain)}
		for _, kind := range o.limitKinds(s) {
			in := toShape(s, frontendsOf(kind))
			rule := nft.Rule{nft.VerdictMap{Key: in.Key, Map: in.Set}}
			if !kind.OfClients() {
				rule = nft.Rule{in, toShape(s, nft.OverSet(kind)), refusalVerdict(observe, model.OverReason(kind), s)}
			}
			chain.Rules = append(chain.Rules, rule)
		}
		if len(chain.Rules) > 0 {
			out = append(out, chain)
		}
	}
	return out
}
