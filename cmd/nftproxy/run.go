package main

import (
	"context"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/daemon"
	"github.com/nftproxy/nftproxy/internal/model"
)

const runName = "run"

// runOptions are the flags of run: those of kube-proxy, and ours.
type runOptions struct {
	options
	version       versionFlag
	writeConfigTo string
	cleanup       bool
	initOnly      bool
}

func runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   runName + " -f FILE | --kubeconfig FILE | --config FILE",
		Short: "Keep the kernel at what a file or a cluster says",
		Long: `Apply the files, then watch them and apply every change at once. A file that
cannot be used is reported and changes nothing: what worked before goes on.

With --kubeconfig, --master, or in a pod without -f, follow the API server of a
Kubernetes cluster instead. Nothing is applied before all Services and
EndpointSlices are known, and while the server is away the rules stay.

The flags are those of kube-proxy, also those that mean nothing here; --config
takes its configuration file, which then decides in place of the flags that it
has fields for. When that file gets another content, and one that can be used,
the process ends with exit code 1, for its supervisor to start it again. Any
other content is logged, and changes nothing.

From kernel 6.9 on the process owns its tables: no other program can change or
flush them while it runs. Before, and with --no-table-owner, what others do to
them is repaired at once.

SIGTERM and SIGINT end the process and leave the rules in place, so that a
restart disturbs no traffic; "nftproxy cleanup" removes them.

Exit code: 0 told to end, or done with --cleanup, --init-only, --write-config-to;
1 error.`,
		Example: `  nftproxy run -f services.yaml
  nftproxy run -f /etc/nftproxy/ --cluster-cidr 10.128.0.0/9,fd00:10:128::/48
  nftproxy run --kubeconfig /etc/kubernetes/kubeconfig --hostname-override node-1 --cluster-cidr 10.128.0.0/9
  nftproxy run --config /var/lib/kube-proxy/config.conf --hostname-override node-1
  nftproxy run --cluster-cidr 10.128.0.0/9 --write-config-to config.conf`,
		Args: runArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.addFlags(c)
	o.settings.AddDaemon()
	addVersionFlag(c, &o.version)
	c.Flags().StringVar(&o.writeConfigTo, "write-config-to", "", "write the configuration in effect to this `file`, and exit")
	c.Flags().BoolVar(&o.cleanup, "cleanup", false, "remove the rules, and what kube-proxy left, and exit")
	c.Flags().BoolVar(&o.initOnly, "init-only", false, "do what needs privileges before rules are made, make none, and exit")
	return c
}

// runArguments passes over empty arguments, which templates of command lines for
// kube-proxy leave behind.
func runArguments(c *cobra.Command, args []string) error {
	return noArguments(c, slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "" }))
}

func (o *runOptions) run(c *cobra.Command) error {
	if o.version.asked() {
		return o.version.write(c)
	}
	cfg, log, err := o.start(c)
	switch {
	case err != nil:
		return err
	case o.writeConfigTo != "":
		return cfg.WriteFile(o.writeConfigTo)
	case o.cleanup:
		return cleanUp(c, log)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Who reads the log may end before us, which is no reason to follow.
	signal.Ignore(syscall.SIGPIPE)
	d := &daemon.Daemon{
		Config:  cfg,
		Version: version,
		Flags:   func() map[string]string { return config.Values(c.Flags()) },
		SetVerbosity: func(level uint32) error {
			o.level.Set(levelOf(logsapi.VerbosityLevel(level)))
			return nil
		},
		Log: log,
	}
	if d.Source, err = o.daemonSource(c, cfg, log); err != nil {
		return err
	}
	work := o.runWatched
	if o.initOnly {
		work = (*daemon.Daemon).Init
	}
	if err := work(d, ctx); ctx.Err() == nil {
		return err
	}
	return nil // told to end
}

// runWatched runs the daemon until ctx ends, or until the file that it is
// configured by has another content to start with.
func (o *runOptions) runWatched(d *daemon.Daemon, ctx context.Context) error {
	if d.Config.File == nil {
		return d.Run(ctx)
	}
	watch, err := watchConfig(d.Config.File, o.usable, d.Log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(watch(ctx)) }()
	return d.Run(ctx)
}

// usable returns an error if the process could not start with the configuration
// as it is now.
func (o *runOptions) usable() error {
	cfg, err := o.settings.Load()
	if err != nil {
		return err
	}
	switch uses, err := o.usesCluster(cfg); {
	case err != nil:
		return err
	case uses:
		_, err := access(cfg)
		return err
	}
	return nil
}

// daemonSource returns where the objects come from.
func (o *runOptions) daemonSource(c *cobra.Command, cfg *config.Config, log *slog.Logger) (daemon.Source, error) {
	switch uses, err := o.usesCluster(cfg); {
	case err != nil:
		return daemon.Source{}, err
	case uses:
		return followCluster(cfg, log)
	}
	o.settings.WithoutCluster(cfg)
	return o.followFiles(c, cfg, log)
}

// followFiles returns the objects in the files.
func (o *runOptions) followFiles(c *cobra.Command, cfg *config.Config, log *slog.Logger) (daemon.Source, error) {
	files, err := o.source(c.InOrStdin(), cfg)
	if err != nil {
		return daemon.Source{}, err
	}
	watcher, err := files.NewWatcher() // before the files are read, so that no change is lost
	if err != nil {
		return daemon.Source{}, err
	}
	var node atomic.Pointer[model.Node]
	before := &model.Snapshot{}
	return daemon.Source{
		Name:  "files " + strings.Join(o.files, " "),
		Watch: watcher.Run,
		Load: func() (*model.Update, error) {
			s, err := load(files, log)
			if err != nil {
				return nil, err
			}
			n, _ := s.Node(cfg.Node.NodeName) // a machine needs no Node object
			node.Store(n)
			u := s.Since(before)
			before = s
			return u, nil
		},
		Node: node.Load,
	}, nil
}
