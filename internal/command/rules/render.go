package rules

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/render"
)

func RenderCommand() *cobra.Command {
	var o command.Options
	var output cli.Output
	var objects bool
	c := &cobra.Command{
		Use:   "render -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Print the rules for a file or a cluster (dry run)",
		Long: `Print the complete rules for the objects in the files, or for those of an API
server. This neither reads nor writes the kernel and needs no privileges. With
ranges for --nodeport-addresses it uses the addresses of the Node object, and
the other commands those of the machine's interfaces.

The output can be loaded with "nft -f" any number of times: it replaces the
tables of nftproxy in one transaction.

With --objects, print the objects of the files as Kubernetes objects, in YAML: each
Balance as the Service and EndpointSlices that it stands for, others as they are. A
Balance that Kubernetes has no objects for stays one, with a comment that names its
settings, and with the values that it has from Defaults and Servers: one with relay,
announce, names of DNS, or the addresses of an interface. All lead to the same rules.

Exit code: 0 printed, 2 error, or a warning with --strict.`,
		Example: `  nftproxy render -f services.yaml
  nftproxy render -f services.yaml | nft -c -f -          # check with nft
  nftproxy render -f cluster/ --hostname-override node-1  # as node-1 would
  nftproxy render --kubeconfig ~/.kube/config --hostname-override node-1
  kubectl get services,endpointslices,nodes -A -o yaml | nftproxy render -f -
  nftproxy render -f balance.yaml --objects
  nftproxy render -f services.yaml -o json | jq '.nftables[] | .map // empty | .name'`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if objects && c.Flags().Changed("output") {
				return errors.New("--objects and --output exclude each other: objects are printed as YAML")
			} else if objects {
				return printObjects(c, &o)
			}
			side, _, err := o.ReadSide(c, false)
			if err != nil {
				return err
			}
			o.ShowPhase(c, "rendering %d frontends", len(side.Routing.Routes))
			rs := render.Render(side.Routing)
			return output.Print(c.OutOrStdout(), cli.JSONFunc(rs.JSON), rs.Text)
		},
	}
	o.AddFlags(c)
	o.Settings.AddCounters("count the connections to each frontend", "count the connections to each endpoint as well")
	o.Warnings.AddFlag(c)
	output.AddFormat(c, "; json has the schema of \"nft -j list\"", "nft", cli.JSON, cli.YAML)
	c.Flags().BoolVar(&objects, "objects", false, "print the objects of the files as Kubernetes objects, in place of rules")
	return c
}

func printObjects(c *cobra.Command, o *command.Options) error {
	cfg, log, err := o.LoadConfig(c)
	if err != nil {
		return err
	}
	files, err := o.NewReader(c.InOrStdin(), cfg)
	if err != nil {
		return err
	}
	files.Keep = true
	input, err := files.Load()
	if err != nil {
		return err
	}
	o.Warnings.LogInput(log, input)
	if err := o.Warnings.Check(); err != nil {
		return err
	}
	return input.WriteManifests(c.OutOrStdout())
}
