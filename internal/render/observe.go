package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Every connection that the rules refuse ends with a verdict that [refusalVerdict] returns. While
// refusals are observed, it leads to a chain for the reason, which counts the connection
// in a dynamic set, logs samples, and refuses it. The elements of these sets are state, like
// bindings of clients. Connections that are served do not pass these chains.
//
// The first of the limits belongs to the element, so that a flood of one frontend leaves room
// for the others in the log. The last rule refuses also when the set is full. Of a refused packet's time, the
// look-up with the counter takes 4 % and the rate, which is a lock and a clock, 3.5 % (6.18). Samples by
// number (numgen) in front of the rate would take 1 %, but hide most refusals of a frontend without a flood.

// refusalVerdict returns the verdict for connections to frontends of a shape that are refused for
// a reason.
func refusalVerdict(observe model.Observe, r model.RefusalReason, s nft.Shape) nft.Verdict {
	if observe.Refusals() {
		return nft.Verdict{Action: nft.Goto, Chain: nft.RefusalOf(r, s)}
	}
	return endingVerdict(r)
}

func endingVerdict(r model.RefusalReason) nft.Verdict {
	if model.Refusals[r].Rejected {
		return nft.Verdict{Action: nft.Goto, Chain: nft.RefuseChain}
	}
	return nft.Verdict{Action: nft.Drop}
}

func eachRefusal(r *model.Routing, o options, do func(model.RefusalReason, nft.Shape)) {
	if !r.Observe.Refusals() {
		return
	}
	for _, s := range []nft.Shape{nft.OfPort, nft.OfRange} {
		if s == nft.OfRange && !o.hasKind(ranged) {
			continue
		}
		for reason, row := range model.Refusals {
			if reason := model.RefusalReason(reason); (s == nft.OfPort || row.CountedBy == model.ByFrontend) && o.canRefuse(r, reason, s) {
				do(reason, s)
			}
		}
	}
}

// canRefuse reports whether a rule of the table refuses connections to frontends of a shape
// for a reason that depends on an option or a setting.
func (o options) canRefuse(r *model.Routing, reason model.RefusalReason, s nft.Shape) bool {
	switch reason {
	case model.NotAllowed, model.Denied:
		return slices.ContainsFunc(o.clientListsOf(s), func(l clientList) bool { return l.reason == reason })
	case model.OverRate, model.OverClientRate, model.OverConnections, model.OverClientConnections:
		return slices.ContainsFunc(o.limitKinds(s), func(k model.LimitKind) bool { return model.OverReason(k) == reason })
	case model.AffinityReleased: // ranges have no affinity
		return s == nft.OfPort && o.hasKind(sticky)
	case model.InvalidDestination:
		return r.Wildcards
	case model.PingRefused:
		return len(r.AnswerFrom) > 0
	}
	return true
}

func refusalSets(r *model.Routing, o options) (out []*nft.Set) {
	eachRefusal(r, o, func(reason model.RefusalReason, s nft.Shape) {
		out = append(out, declareDynamic(nft.RefusalOf(reason, s), budget.CountedRefusals, true))
	})
	return out
}

// refusalChains returns the chains that count and refuse.
//
//	update @refused-denied { ip daddr . meta l4proto . th dport counter limit rate 10/second burst 10 packets }
//	  limit rate 500/second burst 500 packets log prefix "denied" group 28272 snaplen 96
//	drop
func refusalChains(r *model.Routing, o options) (out []*nft.Chain) {
	eachRefusal(r, o, func(reason model.RefusalReason, s nft.Shape) {
		c := &nft.Chain{Name: nft.RefusalOf(reason, s)}
		count := func(key nft.Concat, before ...nft.Statement) {
			c.Rules = append(c.Rules, append(before,
				nft.CountRefused(c.Name, key, nft.SampleRate), nft.Within{Rate: nft.LogRate},
				nft.Log{Prefix: reason.String(), Group: r.Observe.Group, Snaplen: nft.Snaplen}))
		}
		switch by := model.Refusals[reason].CountedBy; {
		case by == model.ByAddress:
			count(nft.Concat{nft.DestinationAddress})
		case by == model.ByProtocol:
			count(nft.Concat{nft.AnyDestination, nft.TransportProtocol})
		case reason == model.AffinityReleased: // behind DNAT
			for _, p := range model.Protocols { // nft requires it before "proto-dst"
				count(original[s], nft.ProtocolIs{Protocol: p})
			}
		default:
			count(dialled[s])
		}
		c.Rules = append(c.Rules, nft.Rule{endingVerdict(reason)})
		out = append(out, c)
	})
	return out
}

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
		ends.Rules = append(ends.Rules, append(nft.Rule{tcp, nft.IsAnswer}, end...), append(nft.Rule{nft.ResetsTCP}, end...))
	}
	toEnds := []nft.Rule{{nft.EndsTCP, nft.Verdict{Action: nft.Jump, Chain: endsChain}}} // all packets of the node pass it
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

func toWatch(o options) []nft.Rule {
	if !o.hasKind(observed) {
		return nil
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: watchChain}}}
}

// Samples of the TCP connections that the rules send to an endpoint are logged twice: right before
// their translation, and where they leave the node or end at it. A connection with the first message alone
// was lost in between, mostly to another program's filter of forwarded packets; the second message has
// the endpoint. Whether that has answered is in the connection tracking entry a moment later. UDP has no such
// answer: many servers send none.
//
// The first chain takes the samples, and notes each connection for the second one. While all connections are
// logged behind their translation, there is no second one.

const (
	sampleChain  = "sample"
	passageChain = "passage"
)

func logsTwice(o model.Observe) bool { return o.Failures() && !o.Connections() }

func sampleSets(r *model.Routing) (out []*nft.Set) {
	if r.Observe.Failures() {
		out = append(out, declareDynamic(nft.SampledSet, budget.CountedRefusals, false))
	}
	if logsTwice(r.Observe) {
		out = append(out, declareDynamic(nft.SampledConnectionsSet, budget.Sampled, false))
	}
	return out
}

// sampleChains returns the chain that takes samples, to which those lead that translate connections, and the chain
// behind translation with the base chain for endpoints that are this node; early-postrouting leads there,
// too. They see the first packet of a connection. The last limit also holds while the set of frontends is full.
//
//	update @sampled { ip daddr . meta l4proto . th dport timeout 1s limit rate over 5/second } return
//	limit rate 200/second burst 200 packets update @sampled-connections { ip daddr . ip saddr . th sport . th dport timeout 1s }
//	  log prefix "chosen" group 28272 snaplen 96
//
//	ct status ! dnat return
//	meta l4proto tcp ct original ip daddr . ct original ip saddr . ct original proto-src . ct original proto-dst @sampled-connections
//	  log prefix "sample" group 28272 snaplen 96
func sampleChains(r *model.Routing, o options) []*nft.Chain {
	if !r.Observe.Failures() {
		return nil
	}
	back, note := nft.Verdict{Action: nft.Return}, nft.Rule{}
	if logsTwice(r.Observe) {
		note = nft.Rule{nft.Enter(nft.SampledConnectionsSet, nft.Concat{nft.DestinationAddress, nft.SourceAddress, nft.SourcePort, nft.DestinationPort}, arrivalTime)}
	}
	out := []*nft.Chain{{Name: sampleChain, Rules: []nft.Rule{
		{nft.OverLimit(nft.SampledSet, dialled[nft.OfPort], nft.FrontendSamples), back},
		append(append(nft.Rule{nft.Within{Rate: nft.AllSamples}}, note...), observedLog(r, model.ChosenPrefix)),
	}}}
	if !logsTwice(r.Observe) {
		return out
	}
	passage := &nft.Chain{Name: passageChain, Rules: append(skipUntranslated(o), nft.Rule{nft.ProtocolIs{Protocol: model.TCP},
		nft.InSet{Key: nft.Concat{nft.OriginalDestination, nft.OriginalSource, nft.OriginalClientPort, nft.OriginalPort}, Set: nft.SampledConnectionsSet},
		observedLog(r, model.SamplePrefix)})}
	return append(out, passage, &nft.Chain{Name: "sample-input", Hook: nft.Input, Priority: nft.PriorityEarly, Rules: toPassage(r)})
}

// skipUntranslated returns the rule with which a chain behind translation leaves other connections out. A frontend that is its
// own endpoint does not count as translated.
//
//	ct status ! dnat return
func skipUntranslated(o options) []nft.Rule {
	if o.hasKind(self) {
		return nil
	}
	return []nft.Rule{{nft.NotTranslated, nft.Verdict{Action: nft.Return}}}
}

// toSample returns the rule that leads to the chain that takes samples.
//
//	meta l4proto tcp jump sample
func toSample(o model.Observe) []nft.Rule {
	if !o.Failures() {
		return nil
	}
	return []nft.Rule{{nft.ProtocolIs{Protocol: model.TCP}, nft.Verdict{Action: nft.Jump, Chain: sampleChain}}}
}

func toPassage(r *model.Routing) []nft.Rule {
	if !logsTwice(r.Observe) {
		return nil
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: passageChain}}}
}
