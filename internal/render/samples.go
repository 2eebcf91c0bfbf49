package render

import (
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Samples of the TCP connections that the rules send to an endpoint are logged, where these
// connections leave the node or end at it. Whether the endpoint has answered is in the
// connection tracking entry a moment later. UDP has no such answer: many servers send none. While all
// connections are logged, samples are taken of those messages.

const sampleChain = "sample"

// samples reports whether a table logs samples.
func samples(r *model.Routing) bool { return r.Observe.Failures() && !r.Observe.Connections() }

func sampleSets(r *model.Routing) []*nft.Set {
	if !samples(r) {
		return nil
	}
	s := nft.Declare(nft.SampledSet)
	s.Dynamic, s.Size = true, budget.CountedRefusals
	return []*nft.Set{s}
}

// sampleChains returns the chain that logs samples, and the base chain for endpoints that are
// this node; early-postrouting leads there, too. They see the first packet of a connection. The
// last limit also holds while the set is full.
//
//	ct status ! dnat return
//	meta l4proto tcp update @sampled { ct original ip daddr . meta l4proto . ct original proto-dst timeout 1s limit rate over 5/second } return
//	meta l4proto tcp limit rate 200/second burst 200 packets log prefix "sample" group 28272 snaplen 96
func sampleChains(r *model.Routing) []*nft.Chain {
	if !samples(r) {
		return nil
	}
	tcp, back := nft.ProtocolIs{Protocol: model.TCP}, nft.Verdict{Action: nft.Return}
	return []*nft.Chain{
		{Name: sampleChain, Rules: []nft.Rule{
			{nft.NotTranslated{}, back},
			{tcp, nft.OverLimit{Set: nft.SampledSet, Key: original[nft.OfPort], Limit: nft.FrontendSamples}, back},
			{tcp, nft.Within{Rate: nft.AllSamples}, nft.Log{Prefix: model.SamplePrefix, Group: r.Observe.Group, Snaplen: nft.Snaplen}},
		}},
		{Name: "sample-input", Hook: nft.Input, Priority: nft.PriorityEarly, Rules: toSample(r)},
	}
}

// toSample returns the rule that leads to these.
func toSample(r *model.Routing) []nft.Rule {
	if !samples(r) {
		return nil
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: sampleChain}}}
}
