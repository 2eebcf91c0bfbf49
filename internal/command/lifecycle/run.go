// Package lifecycle has the commands that start, end and replace: run, cleanup, and migrate from kube-proxy.
package lifecycle

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/daemon"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/source/join"
	"github.com/nftproxy/nftproxy/internal/systemd"
)

type runOptions struct{ command.RunFlags }

func RunCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   command.RunName + " [-f FILE] [--kubeconfig FILE | --config FILE]",
		Short: "Keep the kernel in sync with a file or a cluster",
		Long: `Apply files of Balances or Services, then watch them and apply every change
immediately. An invalid file is reported and changes nothing: the current rules stay
in place. With --isolate-files that concerns the invalid file alone: its last valid content
stays in use, the other files are followed, and an empty directory is valid.
$STATE_DIRECTORY, which systemd sets, has the last valid content for restarts, and
$RUNTIME_DIRECTORY a record of the rules, with which a restart reads none back.

With --kubeconfig, --master, or in a pod without -f, follow the API server of a
Kubernetes cluster instead. Nothing is applied before all Services and
EndpointSlices are known, and the rules stay while the server is unavailable.

With -f and --kubeconfig, or --master, serve both: for the address of the API
servers themselves, which the files define. After a boot the files are served
before the API server is reachable; of a Service in both, that of the files.

The flags are those of kube-proxy, including those without an effect here.
--config takes its configuration file, which then overrides the flags that it
has fields for. When the content of that file changes and is valid, the process
exits with 1, so that its supervisor restarts it. Invalid content is
logged and changes nothing.

On kernel 6.9 and later the process owns its tables: no other program can change
or flush them while it runs. On older kernels, and with --no-table-owner,
outside changes are repaired immediately: rules that vanish are back within a
second each time, and only repeated repairs of single elements wait longer.

SIGTERM and SIGINT end the process and leave the rules in place, so that a
restart does not disrupt traffic; "nftproxy cleanup" removes them.

Exit code: 0 ended by a signal, or done with --cleanup, --init-only or
--write-config-to; 1 error.`,
		Example: `  nftproxy run -f services.yaml
  nftproxy run -f /etc/nftproxy/ --cluster-cidr 10.128.0.0/9,fd00:10:128::/48
  nftproxy run --kubeconfig /etc/kubernetes/kubeconfig --hostname-override node-1 --cluster-cidr 10.128.0.0/9
  nftproxy run -f /etc/nftproxy/apiserver.yaml --kubeconfig /etc/kubernetes/kubelet.conf
  nftproxy run --config /var/lib/kube-proxy/config.conf --hostname-override node-1
  nftproxy run --cluster-cidr 10.128.0.0/9 --write-config-to config.conf`,
		Args: func(c *cobra.Command, args []string) error { // templates of kube-proxy's command line may contain empty ones
			return cli.NoArguments(c, slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "" }))
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.AddRunFlags(c)
	cli.FailWithNo(c)
	return c
}

func (o *runOptions) run(c *cobra.Command) (err error) {
	if o.Version.Asked() {
		return o.Version.Write(c)
	}
	defer func() {
		if err != nil {
			systemd.Failed(err)
		}
	}()
	cfg, log, err := o.LoadConfig(c)
	switch {
	case err != nil:
		return err
	case o.WriteConfigTo != "":
		return cfg.WriteFile(o.WriteConfigTo)
	case o.Cleanup:
		var output cli.Output
		if err := output.Check(c.OutOrStdout()); err != nil {
			return err
		}
		return cleanUp(c, log, output.Paint)
	}
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	// The process survives the exit of its log reader.
	signal.Ignore(syscall.SIGPIPE)
	d := &daemon.Daemon{
		Config:         cfg,
		Program:        program{o, c},
		Version:        command.ProgramVersion(c),
		StateDirectory: command.ServiceDirectory("STATE_DIRECTORY"), RuntimeDirectory: command.ServiceDirectory("RUNTIME_DIRECTORY"),
		Log: log,
	}
	if systemd.Supervised() {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		d.Reload = hangup
	}
	if err := o.addSource(c, d); err != nil {
		return err
	}
	work := d.Run
	if o.InitOnly {
		work = d.Init
	}
	if err := work(ctx); ctx.Err() == nil {
		return err
	}
	return nil // a signal
}

// program implements [daemon.Program].
type program struct {
	*runOptions
	command *cobra.Command
}

// Usable implements [daemon.Program].
func (p program) Usable() error {
	cfg, err := p.Settings.Load()
	if err != nil {
		return err
	}
	if from := p.Origin(cfg); from.Cluster && !from.Files {
		return command.NewAccess(p.command, cfg).Check()
	}
	return nil
}

// Flags implements [daemon.Program].
func (p program) Flags() map[string]string { return config.Values(p.command.Flags()) }

// SetVerbosity implements [daemon.Program].
func (p program) SetVerbosity(level uint32) error {
	p.Level.Set(command.LevelOf(logsapi.VerbosityLevel(level)))
	return nil
}

// addSource sets the source that the daemon follows. With files, nothing of the API server
// needs to exist at the start: the files may make it reachable.
func (o *runOptions) addSource(c *cobra.Command, d *daemon.Daemon) (err error) {
	from := o.Origin(d.Config)
	if !from.Cluster {
		if d.Config.Own.NodeCondition {
			d.Log.Warn("setting has no effect", "flag", "--node-condition", "because", "there is no API server")
		}
		o.Settings.WithoutCluster(d.Config)
		d.Source, err = o.follow(c, d)
		return err
	}
	if err := atomicfile.CheckRegular(d.Config.Kube.ClientConnection.Kubeconfig); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err) // reading it could block without end
	}
	api := command.NewAccess(c, d.Config)
	if from.Files {
		err = o.join(c, d, &api)
	} else {
		d.Cluster, err = command.OpenCluster(c, d.Config, d.Log)
		d.Source = d.Cluster
	}
	if err != nil {
		return err
	}
	// Events have a client of their own because each client has a rate limit.
	d.Events = api.DeferredGroup(d.Log, eventsv1.SchemeGroupVersion, &eventsv1.Event{})
	if d.Config.Own.NodeCondition {
		d.Condition = api.DeferredGroup(d.Log, corev1.SchemeGroupVersion, &corev1.Node{})
	}
	return nil
}

func (o *runOptions) follow(c *cobra.Command, d *daemon.Daemon) (source.Source, error) {
	reader, err := o.NewReader(c.InOrStdin(), d.Config)
	if err != nil {
		return nil, err
	}
	if o.IsolateFiles {
		var kept *files.Kept // the last valid content outlasts a restart in the directory that systemd has made for that
		if d.StateDirectory != "" {
			kept = &files.Kept{Dir: filepath.Join(d.StateDirectory, "valid")}
		}
		reader.Isolation = files.NewIsolation(kept)
		d.Isolation = reader.Isolation
	}
	for _, path := range reader.Paths {
		if abs, err := filepath.Abs(path); err == nil && path != "-" {
			d.Sources = append(d.Sources, abs)
		}
	}
	watcher, err := files.NewWatcher(reader.Paths...) // before the files are read, so that no change is lost
	if err != nil {
		return nil, err
	}
	return files.Follow(reader, watcher, d.Config.Node.NodeName, d.Log), nil
}

// join sets the source of files and an API server, and how that is dialed.
func (o *runOptions) join(c *cobra.Command, d *daemon.Daemon, api *cluster.Access) error {
	followed, err := o.follow(c, d)
	if err != nil {
		return err
	}
	api.Dialer = cluster.NewDialer()
	d.Cluster = command.NewCluster(api.Deferred(d.Log), d.Config, d.Log)
	d.Joined = join.New(followed, d.Cluster, api.Dialer)
	d.Source = d.Joined
	return nil
}
