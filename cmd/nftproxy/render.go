package main

import (
	"fmt"

	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/spf13/cobra"
)

func renderCommand() *cobra.Command {
	var o options
	var output string
	c := &cobra.Command{
		Use:   "render -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Print the rules for a file or a cluster (dry run)",
		Long: `Print the complete rules for the objects in the files, or for those of an API
server. Nothing is read from or written to the kernel, so no privilege is needed. With ranges for
--nodeport-addresses the addresses of the Node object stand in for those of the
machine's interfaces, which the other commands use.

The output can be loaded with "nft -f", any number of times: it replaces our
tables in one transaction.`,
		Example: `  nftproxy render -f services.yaml
  nftproxy render -f services.yaml | nft -c -f -          # check with nft
  nftproxy render -f cluster/ --hostname-override node-1  # as node-1 would
  nftproxy render --kubeconfig ~/.kube/config --hostname-override node-1
  kubectl get services,endpointslices,nodes -A -o yaml | nftproxy render -f -
  nftproxy render -f services.yaml -o json | jq '.nftables[] | .map // empty | .name'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "nft" && output != "json" {
				return fmt.Errorf("--output: %q is not known: use nft or json", output)
			}
			routing, _, err := o.routing(c, false)
			if err != nil {
				return err
			}
			rs := render.Render(routing)
			if output == "json" {
				return rs.JSON(c.OutOrStdout())
			}
			return rs.Text(c.OutOrStdout())
		},
	}
	o.addFlags(c)
	c.Flags().StringVarP(&output, "output", "o", "nft", "`format`: nft, or json in the schema of \"nft -j list\"")
	return c
}
