package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run -f FILE | --kubeconfig FILE",
		Short: "Keep the kernel at what a file or a cluster says",
		Long: `Apply the files, then watch them and apply every change at once. A file that
cannot be used is reported and changes nothing: what worked before goes on.

With --kubeconfig, --master, or in a pod without -f, follow the API server of a
Kubernetes cluster instead. Nothing is applied before all Services and
EndpointSlices are known, and while the server is away the rules stay.

SIGTERM and SIGINT end the process and leave the rules in place, so that a
restart disturbs no traffic; "nftproxy cleanup" removes them.`,
		Example: `  nftproxy run -f services.yaml
  nftproxy run -f /etc/nftproxy/ --cluster-cidr 10.128.0.0/9,fd00:10:128::/48
  nftproxy run --kubeconfig /etc/kubernetes/kubeconfig --hostname-override node-1 --cluster-cidr 10.128.0.0/9`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.addFlags(c)
	o.cluster.addFlags(c)
	c.Flags().DurationVar(&o.cluster.minSyncPeriod, "min-sync-period", defaultMinSyncPeriod, "least `time` between changes of the rules when following a cluster; changes meanwhile travel together")
	return c
}

func (o *options) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log, err := o.logs.logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	node, err := o.config()
	if err != nil {
		return err
	}
	config := agent.Config{Node: node, Addresses: o.interfaceAddresses(), Log: log}
	follow := o.followFiles
	if o.usesCluster() {
		follow = o.followCluster
	}
	return withKernel(&o.logs, c.ErrOrStderr(), func(kernel *apply.Conn, a *apply.Applier) error {
		config.Applier, config.AffinityUse = a, kernel.AffinityUse
		return follow(ctx, c, config)
	})
}

// followFiles runs an agent that is told when the files change.
func (o *options) followFiles(ctx context.Context, c *cobra.Command, config agent.Config) error {
	files, err := o.source(c.InOrStdin())
	if err != nil {
		return err
	}
	watcher, err := files.NewWatcher() // before the files are read, so that no change is lost
	if err != nil {
		return err
	}
	config.Load = func() (*model.Snapshot, error) { return load(files, config.Log) }
	return follow(ctx, config, watcher.Run)
}

// follow runs an agent beside what tells it of changes: the source and the
// addresses of the node.
func follow(ctx context.Context, config agent.Config, watch func(context.Context, func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := agent.New(config)
	go func() { cancel(watch(ctx, a.Changed)) }()
	if config.Addresses != nil {
		if err := agent.WatchAddresses(ctx, a.Changed); err != nil {
			return err
		}
	}
	if err := a.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
