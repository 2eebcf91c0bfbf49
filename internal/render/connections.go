package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// The connections of a Service that somebody looks at are logged: the first packet behind
// the translation of its destination, and the TCP segments with which the endpoint ends the connection,
// or with which a side resets it. The connection in such a message says whether the client has ended it
// before. Where the kernel adds no connection, the segment with which the client ends it is logged as well,
// and the first packet also before its translation, with the address that the client has dialled.
//
// The sets of frontends, and the chains, are there only while a frontend is observed: the rules
// for the end of a connection see all packets of the node. Ranges of ports are observed by
// their address, because their number is in no packet behind the translation.

const (
	watchChain = "watch"
	endsChain  = "ends"
)

func (c *composer) addObserved(f model.Frontend, asked bool) {
	if !c.observe.Connections() && !(c.observe.Refusals() && asked) {
		return
	}
	c.useOption(option{kind: observed, shape: nft.ShapeOf(f).InSets()})
	if f.IsRange() {
		c.add(nft.ObservedAddressesSet, nft.Element{Key: nft.Key{Address: f.Address}})
		return
	}
	c.add(nft.ObservedSet, nft.Element{Key: nft.FrontendKey(f)})
}

func (o options) watchesShape(r *model.Routing, s nft.Shape) bool {
	return slices.Contains(o, option{kind: observed, shape: s.InSets()}) && (s != nft.OfNode || r.Wildcards)
}

func observedSet(s nft.Shape) string {
	if s == nft.OfRange {
		return nft.ObservedAddressesSet
	}
	return nft.ObservedSet
}

// watchKeys are the keys of observed frontends by their shape: before the translation of the
// destination, and behind it.
var (
	watchDialled  = [...]nft.Concat{nft.OfPort: dialled[nft.OfPort], nft.OfNode: dialled[nft.OfNode], nft.OfRange: {nft.DestinationAddress}}
	watchOriginal = [...]nft.Concat{nft.OfPort: original[nft.OfPort], nft.OfNode: original[nft.OfNode], nft.OfRange: {nft.OriginalDestination}}
)

// watchChains returns the chains that log first packets and ends of connections.
//
//	ct status ! dnat return
//	meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @observed log prefix "connection" group 28272 snaplen 96 return
//	meta l4proto udp ct original ip daddr . meta l4proto . ct original proto-dst @observed log prefix "connection" group 28272 snaplen 96 return
//
//	tcp flags fin,rst jump ends
//
//	meta l4proto tcp ct direction reply ct original ip daddr . meta l4proto . ct original proto-dst @observed log prefix "end" group 28272 snaplen 96 return
//	tcp flags rst ct original ip daddr . meta l4proto . ct original proto-dst @observed log prefix "end" group 28272 snaplen 96 return
//
// A packet is logged once: the address of a range can have an observed port besides.
func watchChains(r *model.Routing, o options) []*nft.Chain {
	if !o.hasKind(observed) {
		return nil
	}
	back := nft.Verdict{Action: nft.Return}
	first := &nft.Chain{Name: watchChain, Rules: skipUntranslated(o)}
	ends := &nft.Chain{Name: endsChain}
	for _, s := range nft.Shapes {
		if !o.watchesShape(r, s) {
			continue
		}
		in := nft.InSet{Key: watchOriginal[s], Set: observedSet(s)}
		for _, p := range model.Protocols { // nft requires it before "proto-dst"
			first.Rules = append(first.Rules, nft.Rule{nft.ProtocolIs{Protocol: p}, in, observedLog(r, model.ConnectionPrefix), back})
		}
		end, tcp := nft.Rule{in, observedLog(r, model.EndPrefix), back}, nft.ProtocolIs{Protocol: model.TCP}
		if r.Observe.Untracked {
			ends.Rules = append(ends.Rules, append(nft.Rule{tcp}, end...))
			continue
		}
		ends.Rules = append(ends.Rules, append(nft.Rule{tcp, nft.IsAnswer{}}, end...), append(nft.Rule{nft.EndsTCP{Resets: true}}, end...))
	}
	toEnds := []nft.Rule{{nft.EndsTCP{}, nft.Verdict{Action: nft.Jump, Chain: endsChain}}} // all packets of the node pass it
	return slices.Concat([]*nft.Chain{
		first,
		ends,
		{Name: "watch-input", Hook: nft.Input, Priority: nft.PriorityEarly, Rules: toWatch(o)},
		{Name: "ends-prerouting", Hook: nft.Prerouting, Filter: true, Priority: nft.PriorityTranslated, Rules: toEnds},
		{Name: "ends-output", Hook: nft.Output, Filter: true, Priority: nft.PriorityTranslated, Rules: toEnds},
	}, dialledChains(r, o))
}

func dialledChains(r *model.Routing, o options) []*nft.Chain {
	if !r.Observe.Untracked {
		return nil
	}
	var rules []nft.Rule
	for _, s := range nft.Shapes {
		if o.watchesShape(r, s) {
			rules = append(rules, nft.Rule{nft.InSet{Key: watchDialled[s], Set: observedSet(s)}, observedLog(r, model.DialledPrefix), nft.Verdict{Action: nft.Return}})
		}
	}
	return []*nft.Chain{
		{Name: "dialled-prerouting", Hook: nft.Prerouting, Priority: nft.PriorityDNAT - 1, Rules: rules},
		{Name: "dialled-output", Hook: nft.Output, Priority: nft.PriorityDNAT - 1, Rules: rules},
	}
}

func observedLog(r *model.Routing, prefix string) nft.Log {
	return nft.Log{Prefix: prefix, Group: r.Observe.Group, Snaplen: nft.Snaplen}
}

// toWatch returns the rule that leads to the chain of first packets.
func toWatch(o options) []nft.Rule {
	if !o.hasKind(observed) {
		return nil
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: watchChain}}}
}
