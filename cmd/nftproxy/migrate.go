package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/migrate"
)

// errNotMigrated ends migrate status with exit code 1. The output shows the problem.
var errNotMigrated = errors.New("problems")

// migrateOptions are the flags of all commands below migrate.
type migrateOptions struct {
	migrate.Access
	migrate.Target
	label, output string
	colour        colourFlag
	paint         bool
}

func migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Move a cluster from kube-proxy to nftproxy, node by node",
		Long: `Keep kube-proxy's pods off the nodes with a label, and let them return. Run this
where kubectl runs. docs/migration.md has all steps around it.

It needs these permissions: get and patch kube-proxy's DaemonSet, list nodes;
"status" also lists pods in the namespace of the DaemonSet.`,
		Example: `  nftproxy migrate keep-off --dry-run     # show what would change
  nftproxy migrate keep-off
  nftproxy migrate status
  nftproxy migrate undo`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(keepOffCommand(), undoCommand(), migrateStatusCommand())
	return c
}

func (o *migrateOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the address of the API server and credentials (default: as for kubectl)")
	config.AddContext(f, &o.Context)
	f.StringVarP(&o.Namespace, "namespace", "n", "kube-system", "`namespace` of kube-proxy")
	f.StringVar(&o.DaemonSet, "daemonset", "kube-proxy", "`name` of kube-proxy's DaemonSet")
	f.StringVarP(&o.label, "label", "l", migrate.DefaultLabel, "`label` of the nodes that nftproxy serves")
	f.StringVarP(&o.output, "output", "o", "text", "`format`: text or json")
	o.colour.add(f)
	_ = c.MarkFlagFilename("kubeconfig") // fails only for an unknown flag
}

func (o *migrateOptions) client(w io.Writer) (_ *migrate.Client, err error) {
	o.paint, err = o.colour.paints(w)
	if err := errors.Join(err, checkOutput(o.output, "text")); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"namespace": o.Namespace, "daemonset": o.DaemonSet} {
		if problems := validation.IsDNS1123Subdomain(value); len(problems) > 0 {
			return nil, errors.New("--" + name + ": " + problems[0])
		}
	}
	if o.Label, err = migrate.ParseLabel(o.label); err != nil {
		return nil, fmt.Errorf("--label: %w", err)
	}
	o.UserAgent = "nftproxy/" + version
	return o.Access.Client(o.Target)
}

func keepOffCommand() *cobra.Command {
	return changeCommand((*migrate.Client).KeepOff, &cobra.Command{
		Use:   "keep-off",
		Short: "Keep kube-proxy off the nodes with the label",
		Long: `Add the condition "nftproxy.dev/proxy NotIn [nftproxy]" to the node affinity of
kube-proxy's DaemonSet. Terms of a node affinity are alternatives, so that each
one gets the condition; without any there will be one. Everything else stays.
What has the condition already is not changed.

kube-proxy's pods restart one after the other on all nodes, and leave those that
have the label. Its rules stay in effect in both cases.

The change is a JSON patch that fails if another client changes the affinity in
between; the command then starts over. -o json prints the patch.

Exit code: 0 the affinity is as wanted, 2 error.`,
		Example: `  nftproxy migrate keep-off --dry-run      # the API server checks, and stores nothing
  nftproxy migrate keep-off
  nftproxy migrate keep-off --context staging --daemonset proxy -n networking
  nftproxy migrate keep-off --dry-run -o json > patch.json
  kubectl -n kube-system patch daemonset kube-proxy --type=json --patch-file patch.json`,
	})
}

func undoCommand() *cobra.Command {
	return changeCommand((*migrate.Client).Undo, &cobra.Command{
		Use:   "undo",
		Short: "Let kube-proxy return to the nodes with the label",
		Long: `Remove the condition that "migrate keep-off" has added, from each term of the
node affinity of kube-proxy's DaemonSet. Everything else stays, also what others
have edited since. A node affinity that consists of the condition alone is
removed; without one, pods run on all nodes.

kube-proxy's pods restart one after the other, and start on the nodes that have
the label. Remove nftproxy from these first: the two need the same ports.

Exit code: 0 the affinity is as wanted, 2 error.`,
		Example: `  nftproxy migrate undo --dry-run
  nftproxy migrate undo`,
	})
}

func changeCommand(change func(*migrate.Client, context.Context, bool) (*migrate.Change, error), c *cobra.Command) *cobra.Command {
	var o migrateOptions
	var dry bool
	c.Args = noArguments
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := o.client(c.OutOrStdout())
		if err != nil {
			return err
		}
		done, err := change(client, c.Context(), dry)
		if err != nil {
			return err
		}
		return o.print(c, done.JSON, done.Print)
	}
	o.addFlags(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "let the API server check the change, and store nothing")
	return c
}

func (o *migrateOptions) print(c *cobra.Command, json func(io.Writer) error, text func(w io.Writer, paint bool) error) error {
	if o.output == "json" {
		return json(c.OutOrStdout())
	}
	return text(c.OutOrStdout(), o.paint)
}

func migrateStatusCommand() *cobra.Command {
	var o migrateOptions
	var own string
	var all bool
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
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := o.client(c.OutOrStdout())
			if err != nil {
				return err
			}
			s, err := client.Status(c.Context(), own)
			if err != nil {
				return err
			}
			err = o.print(c, s.JSON, func(w io.Writer, paint bool) error { return s.Print(w, all, paint) })
			if err == nil && !s.Healthy() {
				return errNotMigrated
			}
			return err
		},
	}
	o.addFlags(c)
	c.Flags().StringVar(&own, "nftproxy", "nftproxy", "`name` of nftproxy's DaemonSet, in the same namespace")
	c.Flags().BoolVar(&all, "all", false, "list all nodes")
	return c
}
