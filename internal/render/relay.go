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
