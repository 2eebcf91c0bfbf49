package render

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// relayChain returns the chain that sends connections to the relay of this process. It is there
// while a frontend is relayed. The map of endpoints has their servers for those who read the
// rules; no rule looks them up.
//
//	meta priority set none
//	meta l4proto tcp redirect to :10245
func relayChain(o model.Observe) *nft.Chain {
	return &nft.Chain{Name: nft.RelayChain, Rules: append(toSample(o),
		nft.Rule{nft.Declassify{}},
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
		{nft.NotTranslated{}, nft.Verdict{Action: nft.Accept}},
		{nft.ToPort{Port: model.RelayPort}, nft.NotClass{Class: nft.Admitted}, nft.Reset{}},
	}}}
}
