package daemon

import (
	"context"

	"github.com/nftproxy/nftproxy/internal/feature/wildcard"
	"github.com/nftproxy/nftproxy/internal/host"
)

// followAddresses makes the engine for Services of files that listen on addresses of interfaces.
func (d *Daemon) followAddresses() {
	d.wildcards = wildcard.NewEngine(wildcard.Config{
		List:   host.AddressesByInterface,
		Follow: func(ctx context.Context, changed func()) { host.FollowAddresses(ctx, changed, d.Log) },
		Log:    d.Log,
	})
}
