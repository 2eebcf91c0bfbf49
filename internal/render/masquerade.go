package render

import (
	"fmt"
	"net/netip"
	"slices"
	"unique"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// With one address to masquerade from, a server has 64,512 connections at most: the kernel gives
// each a source port from 1024 on (nf_nat_l4proto_unique_tuple). A node, or a Balance, may have
// several addresses. They take turns: from a range of addresses, nft takes the one to which the
// address of the client leads by a hash, and a client alone would gain nothing.

// sources are addresses of one family that a chain takes in turn. The rest is zero.
type sources [budget.MasqueradeAddresses]netip.Addr

// sourcesUse names them in a key; the zero value: none.
type sourcesUse = unique.Handle[sources]

func compareSources(a, b sourcesUse) int {
	all := func(u sourcesUse) (s sources) {
		if u != (sourcesUse{}) {
			s = u.Value()
		}
		return s
	}
	first, second := all(a), all(b)
	return slices.CompareFunc(first[:], second[:], netip.Addr.Compare)
}

func (s *sources) usedAddresses() []netip.Addr {
	n := slices.IndexFunc(s[:], func(a netip.Addr) bool { return !a.IsValid() })
	if n < 0 {
		n = len(s)
	}
	return s[:n]
}

// chainName returns the name of the chain, which Services with the same addresses share.
func (s sources) chainName() string {
	h := placement.NewHash()
	for _, a := range s.usedAddresses() {
		h = placement.Add(h, a.AsSlice())
	}
	return fmt.Sprintf("snat-%016x", h.MixedSum())
}

// snatChain returns the chain that masquerades. That of ranges takes their number out of the packet.
func (s sources) snatChain(of nft.Shape) *nft.Chain {
	c := snatChain(of.Chain(s.chainName()), s.usedAddresses())
	if of == nft.OfRange {
		c.Rules = slices.Insert(c.Rules, 0, nft.Rule{nft.Declassify})
	}
	return c
}

// snatChain returns a chain that takes some addresses in turn, for example
//
//	numgen inc mod 3 0 snat to 192.0.2.1 fully-random
//	numgen inc mod 2 0 snat to 192.0.2.2 fully-random
//	snat to 192.0.2.3 fully-random
func snatChain(name string, addresses []netip.Addr) *nft.Chain {
	c := &nft.Chain{Name: name}
	for i, a := range addresses {
		var r nft.Rule
		if left := len(addresses) - i; left > 1 {
			r = nft.Rule{nft.OneIn{Of: uint32(left), InTurn: true}}
		}
		c.Rules = append(c.Rules, append(r, nft.SNATTo{Address: a}))
	}
	return c
}

func masqueradeStatement(f model.Family, r *model.Routing) nft.Statement {
	if len(r.MasqueradeFrom[f]) == 0 {
		return nft.Masquerade
	}
	return nft.Verdict{Action: nft.Goto, Chain: nft.SNATChain}
}

func (c *composer) masqueradeFrom(f model.Frontend, addresses []netip.Addr) {
	shape := nft.ShapeOf(f)
	if len(addresses) == 0 || shape == nft.OfNode { // a Balance has no NodePorts
		return
	}
	c.useOption(option{kind: sourced, shape: shape})
	var from sources
	copy(from[:], addresses)
	use := laneUse{sources: unique.Make(from), lane: lane{shape: shape}}
	c.part.lanes = append(c.part.lanes, use)
	c.add(nft.SetFor(f, nft.SNATFrontendsMap), nft.Element{Key: nft.FrontendKey(f),
		Value: nft.Value{Verdict: nft.Verdict{Action: nft.Goto, Chain: use.chainName()}}})
}

// toSources leads to the chains for their addresses, before all other rules that masquerade.
//
//	meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst vmap @snat-frontends
func toSources(s nft.Shape, o options) (rules []nft.Rule) {
	if !slices.Contains(o, option{kind: sourced, shape: s}) {
		return nil
	}
	lookUp := nft.VerdictMap{Key: original[s], Map: s.Set(nft.SNATFrontendsMap)}
	if s == nft.OfRange { // behind the match of a protocol
		return []nft.Rule{{lookUp}}
	}
	for _, p := range model.Protocols {
		rules = append(rules, nft.Rule{nft.ProtocolIs{Protocol: p}, lookUp})
	}
	return rules
}

// relayChain returns the chain that sends connections to the relay of this process. It is there
// while a frontend is relayed. The map of endpoints has their servers for those who read the
// rules; no rule looks them up.
//
//	meta priority set none
//	meta l4proto tcp redirect to :10245
func relayChain(o model.Observe) *nft.Chain {
	return &nft.Chain{Name: nft.RelayChain, Rules: append(toSample(o),
		nft.Rule{nft.Declassify},
		nft.Rule{nft.ProtocolIs{Protocol: model.TCP}, nft.Redirect{Port: model.RelayPort}})}
}

// relayInput returns the chain that rejects what arrives at the port of the relay by a redirect,
// unless [nft.RelayTable] lets it pass: no other process gets such a connection. All packets of a
// connection are looked at: the one that completes a connection with a cookie is not the first.
//
//	ct status ! dnat accept
//	tcp dport 10245 meta priority != 7265:6c61 reject with tcp reset
func relayInput(o options) []*nft.Chain {
	if !o.hasKind(redirected) {
		return nil
	}
	return []*nft.Chain{{Name: nft.RelayInputChain, Hook: nft.Input, Filter: true, Priority: nft.PriorityRelay, Rules: []nft.Rule{
		{nft.NotTranslated, nft.Verdict{Action: nft.Accept}},
		{nft.ToPort{Port: model.RelayPort}, nft.NotClass{Class: nft.Admitted}, nft.Reset},
	}}}
}
