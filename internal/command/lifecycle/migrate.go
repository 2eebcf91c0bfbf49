package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/migrate"
)

// migrateOptions are the flags of all commands below migrate.
type migrateOptions struct {
	kubectl.Access
	migrate.Target
	label string
}

func MigrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Move a cluster from kube-proxy to nftproxy, node by node",
		Long: `Show which proxy runs on which node, and print the kubectl commands that keep
kube-proxy's pods off the nodes with a label, and let them return. Run this where
kubectl runs. docs/migration.md has all steps around it.

It needs these permissions: get kube-proxy's DaemonSet; "status" also gets nftproxy's,
and lists nodes, and pods in the namespace of both.`,
		Example: `  nftproxy migrate keep-off
  nftproxy migrate status
  nftproxy migrate undo`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(keepOffCommand(), undoCommand(), migrateStatusCommand())
	return c
}

func (o *migrateOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	declare.In(f, declare.APIServer, func() {
		f.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the address of the API server and credentials (default: as for kubectl)")
	})
	config.AddContext(f, &o.Context)
	f.StringVarP(&o.Namespace, "namespace", "n", "kube-system", "`namespace` of kube-proxy")
	f.StringVar(&o.DaemonSet, "daemonset", "kube-proxy", "`name` of kube-proxy's DaemonSet")
	f.StringVarP(&o.label, "label", "l", migrate.DefaultLabel, "`label` of the nodes that nftproxy serves")
}

func (o *migrateOptions) client(c *cobra.Command) (_ *migrate.Client, err error) {
	for name, value := range map[string]string{"namespace": o.Namespace, "daemonset": o.DaemonSet} {
		if problems := validation.IsDNS1123Subdomain(value); len(problems) > 0 {
			return nil, errors.New("--" + name + ": " + problems[0])
		}
	}
	if o.Label, err = migrate.ParseLabel(o.label); err != nil {
		return nil, fmt.Errorf("--label: %w", err)
	}
	o.UserAgent = command.UserAgent(c)
	return migrate.NewClient(o.Access, o.Target)
}

func keepOffCommand() *cobra.Command {
	return printCommand((*migrate.Client).KeepOff, &cobra.Command{
		Use:   "keep-off",
		Short: "Print the kubectl commands that keep kube-proxy off the nodes with the label",
		Long: `Print the commands that add the condition "nftproxy.dev/proxy NotIn [nftproxy]" to
the node affinity of kube-proxy's DaemonSet, as it is now. Terms of a node affinity are
alternatives, so that each one gets the condition; without any there will be one.
Everything else stays. Nothing is changed before you run the commands; the patch fails
if the terms were changed in between.

kube-proxy's pods restart one after the other on all nodes, and leave those that
have the label. Its rules stay in effect in both cases.

Exit code: 0 printed, also if there is nothing to do; 2 error.`,
		Example: `  nftproxy migrate keep-off
  nftproxy migrate keep-off | sh
  nftproxy migrate keep-off --context staging --daemonset proxy -n networking`,
	})
}

func undoCommand() *cobra.Command {
	return printCommand((*migrate.Client).Undo, &cobra.Command{
		Use:   "undo",
		Short: "Print the kubectl commands that let kube-proxy return to the nodes with the label",
		Long: `Print the commands that remove the condition of "migrate keep-off" from each term
of the node affinity of kube-proxy's DaemonSet. Everything else stays, also what
others have edited since. A required node affinity that consists of the condition
alone is removed; without one, pods run on all nodes.

kube-proxy's pods restart one after the other, and start on the nodes that have
the label. Remove nftproxy from these first: the two need the same ports.

Exit code: 0 printed, also if there is nothing to do; 2 error.`,
		Example: `  nftproxy migrate undo
  nftproxy migrate undo | sh`,
	})
}

// printCommand completes a command that prints others.
func printCommand(write func(*migrate.Client, context.Context, io.Writer) error, c *cobra.Command) *cobra.Command {
	var o migrateOptions
	c.Args = cli.NoArguments
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := o.client(c)
		if err != nil {
			return err
		}
		return write(client, c.Context(), c.OutOrStdout())
	}
	o.addFlags(c)
	return c
}

func migrateStatusCommand() *cobra.Command {
	var o migrateOptions
	var own string
	var all bool
	var output cli.Output
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which proxy runs on which node",
		Long: `Show whether kube-proxy keeps off the nodes with the label, and for each node
which of the two proxies runs there and is ready, nodes with problems first.

Exit code: 0 each node has one ready proxy and kube-proxy keeps off the nodes
with the label, 1 not, or not yet, 2 error.`,
		Example: `  nftproxy migrate status
  nftproxy migrate status --all
  nftproxy migrate status -o json | jq -r '.nodes[] | select(.problem).name'
  until nftproxy migrate status; do sleep 5; done`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := o.client(c)
			if err != nil {
				return err
			}
			s, err := client.Status(c.Context(), own)
			if err != nil {
				return err
			}
			return output.PrintJudged(c.OutOrStdout(), s, !s.Healthy(), func(w io.Writer) error { return s.Print(w, all, output.Paint) })
		},
	}
	o.addFlags(c)
	c.Flags().StringVar(&own, "nftproxy", "nftproxy", "`name` of nftproxy's DaemonSet, in the same namespace")
	c.Flags().BoolVar(&all, "all", false, "list all nodes")
	output.Add(c, "")
	return c
}
