package main

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/source/join"
)

// options are the flags that describe the input, the node and the log.
type options struct {
	files    []string
	settings *config.Flags
	level    slog.LevelVar // of the log
	quiet    bool          // no output but errors
	here     bool          // the rules are for this machine
	drains   drain.List    // endpoints that are drained on this machine
	changes  drain.Changes // servers that commands have changed on this machine
	warnings warnings
	running  running       // nftproxy here
	router   *model.Router // of the objects, if Balances announce addresses here
	// leavesOut reports that a file is not used, and no earlier content of it either.
	leavesOut bool

	isolateFiles bool
}

func (o *options) addFlags(c *cobra.Command) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with Balances, or Services, EndpointSlices and Nodes, - for standard input; can be given several times")
	})
	o.settings = config.NewFlags(c.Flags())
	o.settings.AddRules()
	o.settings.AddCluster()
	o.settings.AddLogging()
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // fails only for an unknown flag
	_ = c.MarkFlagFilename("config")
	_ = c.MarkFlagFilename("kubeconfig")
}

// start returns the configuration and the log, to which it writes remarks about the
// configuration.
func (o *options) start(c *cobra.Command) (*config.Config, *slog.Logger, error) {
	cfg, err := o.settings.Load()
	if err != nil {
		return nil, nil, err
	}
	o.level.Set(levelOf(cfg.Kube.Logging.Verbosity))
	if o.quiet {
		o.level.Set(slog.LevelError)
	}
	newLog := onceLogger
	if c.Name() == runName {
		newLog = newLogger
	}
	log := newLog(c.ErrOrStderr(), cfg.Kube.Logging.Format, &o.level)
	if cfg.Kube.Logging.Verbosity >= 1 { // 12.7
		values := config.Values(c.Flags())
		for _, name := range slices.Sorted(maps.Keys(values)) {
			log.Info("flag in effect", "flag", name, "value", values[name])
		}
	}
	cfg.Report(log)
	return cfg, log, nil
}

// isolateFiles is the name of a flag.
const isolateFiles = "isolate-files"

// addIsolation adds whether a mistake in a file concerns that file alone.
func (o *options) addIsolation(c *cobra.Command, usage string) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().BoolVar(&o.isolateFiles, isolateFiles, false, "isolate errors: "+usage+"; directories may be empty")
	})
}

// addHere adds the flags of commands that compare with the kernel. What they do not say is as
// in the running nftproxy.
func (o *options) addHere(c *cobra.Command) {
	const asRunning, asKernel = " (default: as the running nftproxy)", " (default: if the rules in the kernel do)"
	o.settings.AddDrain()
	o.settings.AddChanges()
	o.settings.AddCounters("count the connections to each frontend"+asKernel, "count the connections to each endpoint as well"+asKernel)
	o.settings.AddHealthChecks("admit health checks also for Services of an API server that have no selector and ask for them" + asRunning)
	o.addIsolation(c, "an invalid file stands for what the running nftproxy serves of it, or is skipped"+asRunning)
	o.running.addAddress(c.Flags())
	o.warnings.addFlag(c)
}

// takeCounters makes rules have the counters of the rules in the kernel, unless flags say
// which: else a daemon that counts would differ, and apply would delete its counters.
func (o *options) takeCounters(n *model.Config) error {
	return withKernel(func(conn *kernel.Conn) error {
		frontends, endpoints, err := counters.Reader{Conn: conn}.Counted()
		if !o.settings.Given(config.EndpointMetrics) {
			n.EndpointCounters = endpoints
		}
		if !o.settings.Given(config.ServiceMetrics) {
			n.Counters = frontends
		}
		n.Counters = n.Counters || n.EndpointCounters
		return err
	})
}

// origin says where the objects come from.
type origin struct{ files, cluster bool }

// origin returns where the objects come from: files, an API server that a flag names,
// or both; without both the API server that the configuration names or that runs this
// pod.
func (o *options) origin(cfg *config.Config) origin {
	if len(o.files) == 0 {
		return origin{cluster: cfg.NamesCluster() || os.Getenv("KUBERNETES_SERVICE_HOST") != ""}
	}
	return origin{files: true, cluster: o.settings.Given("kubeconfig") || o.settings.Given("master") || o.settings.Given(config.KubeContext)}
}

// namesObjects reports whether the flags name files or a cluster. The service account
// of a pod is not sufficient.
func (o *options) namesObjects() bool {
	return len(o.files) > 0 || o.settings.ConfigFile != "" || o.settings.Given("kubeconfig") || o.settings.Given("master")
}

func (o *options) source(stdin io.Reader, cfg *config.Config) (*files.Reader, error) {
	if len(o.files) == 0 {
		return nil, errors.New("no input: name a file with -f, or - for standard input, for example\n" +
			"  nftproxy new 203.0.113.10:443 10.128.0.2 10.128.0.3 > web.yaml; nftproxy render -f web.yaml\n" +
			"  kubectl get services,endpointslices,nodes -A -o yaml | nftproxy render -f -\n" +
			"or read an API server: --kubeconfig")
	}
	return &files.Reader{Paths: o.files, Stdin: stdin, ProxyName: cfg.Own.ServiceProxyName}, nil
}

// routing reads the objects and returns their routing. It logs the notices. here
// selects the interface addresses of this machine.
func (o *options) routing(c *cobra.Command, here bool) (*model.Routing, *slog.Logger, error) {
	side, log, err := o.side(c, here)
	return side.Routing, log, err
}

// side is routing, with the objects. Here, what leads to the rules besides the input is as in
// the running nftproxy, so that both lead to the same rules.
func (o *options) side(c *cobra.Command, here bool) (side changes.Side, log *slog.Logger, err error) {
	cfg, log, err := o.configure(c, here)
	if err != nil {
		return side, nil, err
	}
	side, err = o.sideHere(c, cfg, log)
	return side, log, err
}

// sideHere is side for a configuration that configure has returned.
func (o *options) sideHere(c *cobra.Command, cfg *config.Config, log *slog.Logger) (changes.Side, error) {
	side, err := o.sideOf(c, cfg, log)
	if err == nil {
		o.running.keep(o.leavesOut || !o.origin(cfg).files)
		o.running.report(c.Context(), log)
	}
	return side, err
}

// configure returns the configuration that leads from the objects to rules, and the log.
func (o *options) configure(c *cobra.Command, here bool) (cfg *config.Config, log *slog.Logger, err error) {
	var unknown []string
	if o.here = here; here {
		if unknown, err = o.followRunning(c.Context()); err != nil {
			return nil, nil, err
		}
	}
	if cfg, log, err = o.start(c); err != nil || !here {
		return cfg, log, err
	}
	o.warnOf(log, unknown, o.origin(cfg))
	return cfg, log, o.prepareHere(cfg, log)
}

// prepareHere completes the configuration with facts of this machine and settings of the
// running nftproxy.
func (o *options) prepareHere(cfg *config.Config, log *slog.Logger) (err error) {
	if cfg.Node.NeedsInterfaces() {
		if cfg.Node.InterfaceAddresses, err = host.ServingAddresses(); err != nil {
			return err
		}
	}
	if len(cfg.Node.LoadBalancerCIDRs) > 0 {
		if cfg.Node.Links, err = host.Networks(); err != nil {
			return err
		}
	}
	if o.running.basis != nil {
		common.FollowBasis(&cfg.Node, o.running.basis)
	} else if err := o.takeCounters(&cfg.Node); err != nil {
		return err
	}
	if o.changes, err = o.changed(&cfg.Own); err != nil {
		return err
	}
	o.drains, err = o.drained(log, cfg.Own.DrainFile)
	return err
}

// sideOf reads the objects, resolves them and logs the notices.
func (o *options) sideOf(c *cobra.Command, cfg *config.Config, log *slog.Logger) (side changes.Side, err error) {
	if side.Snapshot, err = o.objects(c, cfg, log); err != nil {
		return side, err
	}
	if o.here {
		if side.Snapshot, err = o.placed(log, side.Snapshot); err != nil {
			return side, err
		}
	} else {
		warnOfPlace(log, side.Snapshot)
	}
	side.Snapshot = o.drains.EditSnapshot(side.Snapshot)
	if o.here && side.Snapshot.HasRanges() { // which addresses of this machine do not get
		if cfg.Node.InterfaceAddresses, err = host.ServingAddresses(); err != nil {
			return side, err
		}
	}
	o.phase(c, "resolving %d Services", len(side.Snapshot.Services))
	router := side.Snapshot.Route(cfg.Node)
	side.Routing = router.Routing()
	if o.here && slices.ContainsFunc(side.Snapshot.Services, announces) {
		o.router = router
	}
	o.warnings.notices(log, side.Routing.Notices)
	return side, o.warnings.check()
}

func access(c *cobra.Command, cfg *config.Config) cluster.Access {
	return cluster.Access{ClientConnectionConfiguration: cfg.Kube.ClientConnection, Master: cfg.Master, Context: cfg.Context, Selectors: cfg.Own.HealthChecks, UserAgent: userAgent(c)}
}

func openCluster(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*cluster.Cluster, error) {
	client, err := access(c, cfg).Client(log)
	if err != nil {
		return nil, err
	}
	return clusterOf(client, cfg, log), nil
}

func clusterOf(client *cluster.Client, cfg *config.Config, log *slog.Logger) *cluster.Cluster {
	// Messages of client-go with verbosity n have level -n.
	klog.SetSlogLogger(log.With("library", "client-go"))
	return cluster.New(client, cluster.Config{
		NodeConfig: cfg.Node, ProxyName: cfg.Own.ServiceProxyName, HealthChecks: cfg.Own.HealthChecks, Log: log,
	})
}

// objects reads the objects of files, of an API server, or of both.
func (o *options) objects(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*model.Snapshot, error) {
	from := o.origin(cfg)
	if !from.cluster {
		return o.filed(c, cfg, log)
	}
	cluster, err := openCluster(c, cfg, log)
	if err != nil {
		return nil, err
	}
	own := &model.Snapshot{}
	if from.files {
		if own, err = o.filed(c, cfg, log); err != nil {
			return nil, err
		}
	}
	o.phase(c, "reading the API server")
	snapshot, err := cluster.Read(c.Context())
	o.warnings.count += cluster.State().Warned // the log has them
	if err != nil {
		return nil, err
	}
	joined, hidden := join.Snapshots(own, snapshot)
	for _, warning := range hidden {
		log.Warn(warning)
	}
	o.warnings.count += len(hidden)
	return joined, nil
}

// filed reads the objects of files.
func (o *options) filed(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*model.Snapshot, error) {
	reader, err := o.source(c.InOrStdin(), cfg)
	if err != nil {
		return nil, err
	}
	if reader.InForce = o.inForce(); o.isolateFiles {
		reader.Isolation = files.NewIsolation(nil) // a command keeps nothing
	}
	o.phase(c, "reading %s", inputs(o.files))
	input, err := reader.Load()
	if err != nil {
		return nil, err
	}
	o.leavesOut = reader.LeftOut || len(input.LeftOut) > 0
	o.warnings.input(log, input)
	return input.Snapshot, nil
}

// announces reports whether interfaces have addresses of a Service because of nftproxy.
func announces(s *model.Service) bool { return s.Extra().Announce != "" }
