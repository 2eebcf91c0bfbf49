package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run -f FILE",
		Short: "Keep the kernel at what a file says",
		Long: `Apply the files, then watch them and apply every change at once. A file that
cannot be used is reported and changes nothing: what worked before goes on.

SIGTERM and SIGINT end the process and leave the rules in place, so that a
restart disturbs no traffic; "nftproxy cleanup" removes them.`,
		Example: `  nftproxy run -f services.yaml
  nftproxy run -f /etc/nftproxy/ --cluster-cidr 10.128.0.0/9,fd00:10:128::/48`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.addFlags(c)
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
	files, err := o.source(c.InOrStdin())
	if err != nil {
		return err
	}
	return withKernel(&o.logs, c.ErrOrStderr(), func(kernel *apply.Conn, a *apply.Applier) error {
		return follow(ctx, files, agent.Config{
			Load:        func() (*model.Snapshot, error) { return load(files, log) },
			Node:        node,
			Addresses:   o.interfaceAddresses(),
			Applier:     a,
			AffinityUse: kernel.AffinityUse,
			Log:         log,
		})
	})
}

// follow runs an agent that is told when the files change, or the addresses of
// the node.
func follow(ctx context.Context, files *source.Files, config agent.Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	watcher, err := files.NewWatcher() // before the files are read, so that no change is lost
	if err != nil {
		return err
	}
	go func() { cancel(watcher.Run(ctx, notify)) }()
	if config.Addresses != nil {
		if err := agent.WatchAddresses(ctx, notify); err != nil {
			return err
		}
	}
	if err := agent.New(config).Run(ctx, changed); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
