package lifecycle

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/footprint"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/takeover"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

func CleanupCommand() *cobra.Command {
	var o command.Options
	var kubeProxy bool
	var output cli.Output
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove nftproxy's tables from the kernel",
		Long: `Remove the tables "ip nftproxy" and "ip6 nftproxy" in one transaction, and then
all that "nftproxy run" left on this machine outside of them: addresses that
"announce" of Balances added to interfaces, settings of the kernel, which get
their former values, files about Balances, records and sockets of processes that
ended, and the empty chain in tables "kube-proxy", with the table if it contains
nothing else. Forwarding stays on where rules of other programs may need it.
Other tables stay unchanged, and established connections continue. While
"nftproxy run" owns the tables, this fails and changes nothing: stop it first.

With --kube-proxy, also remove what kube-proxy left, in whichever mode it ran:
its nftables tables, iptables chains, ipsets, and its virtual servers and the
interface of IPVS. What belongs to the kubelet and other programs stays. Rules of
iptables-legacy are reported only: "kube-proxy --cleanup" from the image of
kube-proxy removes them.

Exit code: 0 removed, or there was nothing to remove; 2 error.`,
		Example: `  nftproxy cleanup
  nftproxy cleanup --kube-proxy`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, log, err := o.LoadConfig(c)
			if err != nil {
				return err
			}
			if kubeProxy {
				return cleanUp(c, log, output.Paint)
			}
			if err := removeTables(c, log, output.Paint); err != nil { // what is outside of them stays while a daemon keeps its rules
				return err
			}
			removed, err := footprint.Remove(command.RuntimeDirectory(), log)
			return errors.Join(printRemoved(c, removed), err)
		},
	}
	c.Flags().BoolVar(&kubeProxy, "kube-proxy", false, "also remove what kube-proxy left")
	output.AddColour(c)
	o.Settings = config.NewFlags(c.Flags())
	o.Settings.AddLogging()
	return c
}

func removeTables(c *cobra.Command, log *slog.Logger, paint bool) error {
	return command.WithApplier(log, func(a *apply.Applier) error {
		p, err := a.Apply(nft.FromNothing(&nft.Ruleset{}))
		if err != nil {
			return err
		}
		return p.Print(c.OutOrStdout(), paint)
	})
}

// cleanUp removes nftproxy's rules and kube-proxy's leftovers (12.59). It continues
// after a failure.
func cleanUp(c *cobra.Command, log *slog.Logger, paint bool) error {
	own, marker := removeTables(c, log, paint), takeover.NoMarker
	if own != nil {
		marker = takeover.MarkReplaced // they are in force
	}
	removed, foreign := takeover.Remove(c.Context(), marker)
	if own == nil {
		left, err := footprint.Remove(command.RuntimeDirectory(), log)
		removed, foreign = append(removed, left...), errors.Join(foreign, err)
	}
	return errors.Join(own, printRemoved(c, removed), foreign)
}

func printRemoved(c *cobra.Command, removed []string) error {
	for _, what := range removed {
		if _, err := fmt.Fprintln(c.OutOrStdout(), "removed", terminal.Printable(what)); err != nil {
			return err
		}
	}
	return nil
}
