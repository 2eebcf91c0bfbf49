package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/conntest/dial"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
)

// peerCommand is what the pods of "cluster test" run. It is not for people.
func peerCommand() *cobra.Command {
	var p dial.Peer
	c := &cobra.Command{
		Use:     "peer",
		Short:   "Answer and open the connections of a test",
		Hidden:  true,
		Example: `  nftproxy peer --control 10299 --serve 8080`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			p.Token = os.Getenv(peers.TokenVariable)
			if p.Token == "" {
				return fmt.Errorf("%s is empty: the command is for the pods of \"nftproxy cluster test\"", peers.TokenVariable)
			}
			for text := range strings.SplitSeq(os.Getenv(peers.AddressesVariable), ",") {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("%s: %w", peers.AddressesVariable, err)
				}
				p.Addresses = append(p.Addresses, a)
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return p.Run(ctx)
		},
	}
	c.Flags().Uint16Var(&p.Control, "control", 0, "`port` on localhost for requests")
	c.Flags().Uint16Var(&p.Serve, "serve", 0, "`port` at which connections are answered")
	return c
}
