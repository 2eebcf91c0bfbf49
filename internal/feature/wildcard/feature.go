package wildcard

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only Services of files listen on addresses of interfaces.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return NewEngine(Config{
		List:   host.AddressesByInterface,
		Follow: func(ctx context.Context, changed func()) { host.FollowAddresses(ctx, changed, n.Log) },
		Log:    n.Log,
	})
}
