package look

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/conntest/dial"
)

// PeerCommand is what the pods of "kubectl nftproxy test" run. It is not for people.
func PeerCommand() *cobra.Command {
	var p dial.Peer
	c := &cobra.Command{
		Use:     "peer",
		Short:   "Answer and open the connections of a test",
		Hidden:  true,
		Example: `  nftproxy peer --control 10299 --serve 8080`,
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			p.Token = os.Getenv(conntest.TokenVariable)
			if p.Token == "" {
				return fmt.Errorf("%s is empty: the command is for the pods of \"kubectl nftproxy test\"", conntest.TokenVariable)
			}
			for text := range strings.SplitSeq(os.Getenv(conntest.AddressesVariable), ",") {
				a, err := netip.ParseAddr(text)
				if err != nil {
					return fmt.Errorf("%s: %w", conntest.AddressesVariable, err)
				}
				p.Addresses = append(p.Addresses, a)
			}
			ctx, stop := cli.EndAtSignal(c)
			defer stop()
			return p.Run(ctx)
		},
	}
	c.Flags().Uint16Var(&p.Control, "control", 0, "`port` on localhost for requests")
	c.Flags().Uint16Var(&p.Serve, "serve", 0, "`port` at which connections are answered")
	return c
}
