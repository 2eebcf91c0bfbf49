package render

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Echo requests to addresses of Services are answered by the kernel of this node: the
// connection is sent to one of its own addresses. It cannot be redirected to the address of
// the input interface, because interfaces of pods may have none; the kernel would then drop
// it.
//
// ICMP has no ports, so these sets have addresses as keys. The rules come behind those for
// frontends: connections that a frontend serves do not reach them. They leave out the
// addresses that the node has at present, as where a virtual address moves to it or a load
// balancer gives out addresses of nodes: it answers these itself.

const echoPreroutingChain = nft.EchoChain + "-prerouting"

// addEcho lists an address with the Service for which the node answers, and its clients. These
// are there without a usable endpoint, too: lists can be long, and an interval set takes
// time for each range (measured on 6.18: 2 s for 10,000 that are removed together).
func (c *composer) addEcho(r *model.Route) {
	key := nft.Key{Address: r.Frontend.Address}
	inside, outside := r.EchoAnswer()
	if inside == model.Forward {
		c.add(nft.EchoSet, nft.Element{Key: key, Comment: nft.EchoComment(r)})
		if outside != model.Forward {
			c.add(nft.EchoInsideSet, nft.Element{Key: key})
		}
	}
	ranges, limited := r.SourceRanges()
	if limited {
		c.add(nft.EchoFirewalledSet, nft.Element{Key: key})
	}
	kept := c.keptSources()
	c.addPrefixes(nft.EchoSourcesSet, key, subtractPrefixes(ranges, kept.Allowed))
	c.addPrefixes(nft.EchoDeniedSet, key, subtractPrefixes(r.DeniedSources(), kept.Denied))
}

// toEcho continues with echo requests to addresses of Services.
//
//	icmp type echo-request ip daddr @echo fib daddr type != local goto echo
func toEcho(f model.Family, r *model.Routing, chain string) []nft.Rule {
	if !r.AnswerFrom[f].IsValid() {
		return nil
	}
	return []nft.Rule{{
		nft.IsEchoRequest,
		nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.EchoSet},
		nft.DestinationNotLocal,
		nft.Verdict{Action: nft.Goto, Chain: chain},
	}}
}

func echoChains(f model.Family, r *model.Routing) []*nft.Chain {
	if !r.AnswerFrom[f].IsValid() {
		return nil
	}
	to, drop := nft.Concat{nft.DestinationAddress}, refusalVerdict(r.Observe, model.PingRefused, nft.OfPort)
	client := nft.Concat{nft.DestinationAddress, nft.SourceAddress}
	outside, _ := notFromPod(f, r)
	return []*nft.Chain{
		{Name: nft.EchoChain, Rules: []nft.Rule{
			{nft.InSet{Key: to, Set: nft.EchoFirewalledSet}, nft.InSet{Key: client, Set: nft.EchoSourcesSet, Not: true}, drop},
			{nft.InSet{Key: client, Set: nft.EchoDeniedSet}, drop},
			{nft.DNATTo{Address: r.AnswerFrom[f]}},
		}},
		{Name: echoPreroutingChain, Rules: []nft.Rule{
			append(outside, nft.InSet{Key: to, Set: nft.EchoInsideSet}, drop),
			{nft.Verdict{Action: nft.Goto, Chain: nft.EchoChain}},
		}},
	}
}

// keepEchoSource ends the hook for echo requests of this node itself, which are translated
// and leave through the loopback interface.
func keepEchoSource(f model.Family, r *model.Routing) []nft.Rule {
	if !r.AnswerFrom[f].IsValid() {
		return nil
	}
	return []nft.Rule{{nft.ProtocolIs{Protocol: model.EchoProtocol(f)}, nft.Verdict{Action: nft.Accept}}}
}
