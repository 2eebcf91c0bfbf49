package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

func describeCommand(a access) *cobra.Command {
	var o fleetOptions
	c := &cobra.Command{
		Use:   "describe NAMESPACE/NAME",
		Short: "Show how all nodes serve a Service, and which differ",
		Long: `Ask the nftproxy of every node, or of the nodes of --node and -l, how it serves a Service, and
describe it once for all nodes that serve it in the same way. Nodes differ where traffic
policies, zones or health checks say so, and where they should not.

Exit code: 0 described, 1 a node did not answer or does not know the Service, 2 error.`,
		Example: `  kubectl nftproxy describe shop/web
  kubectl nftproxy describe shop/web -o json | jq -r '.[] | "\(.nodes | length) \(.nodes[0])"'`,
		Args: cli.DescribeArguments,
		RunE: func(c *cobra.Command, args []string) error { return o.describe(c, a.qualify(args[0])) },
	}
	o.addFlags(c, a)
	c.Flags().StringSliceVar(&o.nodes, "node", nil, "only these `nodes`")
	o.output.Add(c, "")
	return c
}

func (o *fleetOptions) describe(c *cobra.Command, service string) error {
	f, m, err := o.reach(c)
	if err != nil {
		return err
	}
	groups := fleet.Group(fleet.Ask(c.Context(), f, m.agents, progress(c, len(m.agents)), func(ctx context.Context, client *api.Client) (*api.Description, error) {
		return client.Describe(ctx, service)
	}))
	isWrong := slices.ContainsFunc(groups, func(g fleet.Served) bool { return g.Error != "" })
	return o.output.PrintJudged(c.OutOrStdout(), groups, isWrong, func(w io.Writer) error { return printServed(w, groups, o.output.Paint) })
}

func printServed(w io.Writer, groups []fleet.Served, paint bool) error {
	for i := range groups {
		g := &groups[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, terminal.Printable(g.Title()))
		if g.Error != "" {
			fmt.Fprintln(w, terminal.Red.Paint(terminal.Printable(g.Error), paint))
			continue
		}
		if err := show.Description(w, g.Description, time.Now(), paint); err != nil {
			return err
		}
	}
	return nil
}
