package render

import (
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

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
		note = nft.Rule{nft.Enter{Set: nft.SampledConnectionsSet, Key: nft.Concat{nft.DestinationAddress, nft.SourceAddress, nft.SourcePort, nft.DestinationPort}, Timeout: arrivalTime}}
	}
	out := []*nft.Chain{{Name: sampleChain, Rules: []nft.Rule{
		{nft.OverLimit{Set: nft.SampledSet, Key: dialled[nft.OfPort], Limit: nft.FrontendSamples}, back},
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
	return []nft.Rule{{nft.NotTranslated{}, nft.Verdict{Action: nft.Return}}}
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

// toPassage returns the rule that leads to the chain behind translation.
func toPassage(r *model.Routing) []nft.Rule {
	if !logsTwice(r.Observe) {
		return nil
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: passageChain}}}
}
