package command

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/source/join"
)

// Options are the flags that describe the input, the node and the log.
type Options struct {
	Files    []string
	Settings *config.Flags
	Level    slog.LevelVar // of the log
	Quiet    bool          // no output but errors
	here     bool          // the rules are for this machine
	drains   drain.List    // endpoints that are drained on this machine
	changes  drain.Changes // servers that commands have changed on this machine
	Warnings Warnings
	Running  running       // nftproxy here
	Router   *model.Router // of the objects, if Balances announce addresses here
	// leavesOut reports that a file is not used, and no earlier content of it either.
	leavesOut bool

	IsolateFiles bool
}

const filesFlag = "filename"

// AddFiles adds -f, which names the files of the input.
func AddFiles(c *cobra.Command, files *[]string) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().StringArrayVarP(files, filesFlag, "f", nil, "`file` or directory with Balances, or Services, EndpointSlices and Nodes, - for standard input; can be given several times")
	})
}

// AddFlags adds the flags that decide how objects become rules, and the flags of the log.
func (o *Options) AddFlags(c *cobra.Command) {
	AddFiles(c, &o.Files)
	o.Settings = config.NewFlags(c.Flags())
	o.Settings.AddRules()
	o.Settings.AddCluster()
	o.Settings.AddLogging()
}

// LoadConfig returns the configuration and the log, to which it writes remarks about the
// configuration.
func (o *Options) LoadConfig(c *cobra.Command) (*config.Config, *slog.Logger, error) {
	cfg, err := o.Settings.Load()
	if err != nil {
		return nil, nil, err
	}
	o.Level.Set(LevelOf(cfg.Kube.Logging.Verbosity))
	if o.Quiet {
		o.Level.Set(slog.LevelError)
	}
	newLog := onceLogger
	if c.Name() == RunName {
		newLog = newLogger
	}
	log := newLog(c.ErrOrStderr(), cfg.Kube.Logging.Format, &o.Level)
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
func (o *Options) addIsolation(c *cobra.Command, usage string) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().BoolVar(&o.IsolateFiles, isolateFiles, false, "isolate errors: "+usage+"; directories may be empty")
	})
}

// AddHere adds the flags of commands that compare with the kernel. What they do not say is as
// in the running nftproxy.
func (o *Options) AddHere(c *cobra.Command) {
	const asRunning, asKernel = " (default: as the running nftproxy)", " (default: if the rules in the kernel do)"
	o.Settings.AddDrain()
	o.Settings.AddChanges()
	o.Settings.AddCounters("count the connections to each frontend"+asKernel, "count the connections to each endpoint as well"+asKernel)
	o.Settings.AddHealthChecks("admit health checks also for Services of an API server that have no selector and ask for them" + asRunning)
	o.addIsolation(c, "an invalid file stands for what the running nftproxy serves of it, or is skipped"+asRunning)
	o.Running.AddAddress(c.Flags())
	o.Warnings.AddFlag(c)
}

// takeCounters makes rules have the counters of the rules in the kernel, unless flags say
// which: else a daemon that counts would differ, and apply would delete its counters.
func (o *Options) takeCounters(n *model.Config) error {
	return WithKernel(func(conn *kernel.Conn) error {
		frontends, endpoints, err := counters.Reader{Conn: conn}.Counted()
		if !o.Settings.Given(config.EndpointMetrics) {
			n.EndpointCounters = endpoints
		}
		if !o.Settings.Given(config.ServiceMetrics) {
			n.Counters = frontends
		}
		n.Counters = n.Counters || n.EndpointCounters
		return err
	})
}

// origin says where the objects come from.
type origin struct{ Files, Cluster bool }

// Origin returns where the objects come from: files, an API server that a flag names,
// or both; without both the API server that the configuration names or that runs this
// pod.
func (o *Options) Origin(cfg *config.Config) origin {
	if len(o.Files) == 0 {
		return origin{Cluster: cfg.NamesCluster() || os.Getenv("KUBERNETES_SERVICE_HOST") != ""}
	}
	return origin{Files: true, Cluster: o.Settings.Given("kubeconfig") || o.Settings.Given("master") || o.Settings.Given(config.KubeContext)}
}

// NamesObjects reports whether the flags name files or a cluster. The service account
// of a pod is not sufficient.
func (o *Options) NamesObjects() bool {
	return len(o.Files) > 0 || o.Settings.ConfigFile != "" || o.Settings.Given("kubeconfig") || o.Settings.Given("master")
}

// NewReader returns the reader of the files that the flags name.
func (o *Options) NewReader(stdin io.Reader, cfg *config.Config) (*files.Reader, error) {
	if len(o.Files) == 0 {
		return nil, errors.New("no input: name a file with -f, or - for standard input, for example\n" +
			"  nftproxy new 203.0.113.10:443 10.128.0.2 10.128.0.3 > web.yaml; nftproxy render -f web.yaml\n" +
			"  kubectl get services,endpointslices,nodes -A -o yaml | nftproxy render -f -\n" +
			"or read an API server: --kubeconfig")
	}
	return &files.Reader{Paths: o.Files, Stdin: stdin, ProxyName: cfg.Own.ServiceProxyName}, nil
}

// ReadSide reads the objects, and returns them with their routing. It logs the notices. here selects the
// interface addresses of this machine. Here, what leads to the rules besides the input is as in
// the running nftproxy, so that both lead to the same rules.
func (o *Options) ReadSide(c *cobra.Command, here bool) (side changes.Side, log *slog.Logger, err error) {
	cfg, log, err := o.Configure(c, here)
	if err != nil {
		return side, nil, err
	}
	side, err = o.ResolveHere(c, cfg, log)
	return side, log, err
}

// ResolveHere is [Options.ReadSide] for a configuration that [Options.Configure] has returned.
func (o *Options) ResolveHere(c *cobra.Command, cfg *config.Config, log *slog.Logger) (changes.Side, error) {
	side, err := o.ResolveObjects(c, cfg, log)
	if err == nil {
		o.Running.keep(o.leavesOut || !o.Origin(cfg).Files)
		o.Running.LogTaken(c.Context(), log)
	}
	return side, err
}

// Configure returns the configuration that leads from the objects to rules, and the log.
func (o *Options) Configure(c *cobra.Command, here bool) (cfg *config.Config, log *slog.Logger, err error) {
	var unknown []string
	if o.here = here; here {
		if unknown, err = o.followRunning(c.Context()); err != nil {
			return nil, nil, err
		}
	}
	if cfg, log, err = o.LoadConfig(c); err != nil || !here {
		return cfg, log, err
	}
	o.warnOf(log, unknown, o.Origin(cfg))
	return cfg, log, o.prepareHere(cfg, log)
}

// prepareHere completes the configuration with facts of this machine and settings of the
// running nftproxy.
func (o *Options) prepareHere(cfg *config.Config, log *slog.Logger) (err error) {
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
	if o.Running.basis != nil {
		common.FollowBasis(&cfg.Node, o.Running.basis)
	} else if err := o.takeCounters(&cfg.Node); err != nil {
		return err
	}
	if o.changes, err = o.changed(&cfg.Own); err != nil {
		return err
	}
	o.drains, err = o.drained(log, cfg.Own.DrainFile)
	return err
}

// ResolveObjects reads the objects, resolves them and logs the notices.
func (o *Options) ResolveObjects(c *cobra.Command, cfg *config.Config, log *slog.Logger) (side changes.Side, err error) {
	if side.Snapshot, err = o.ReadObjects(c, cfg, log); err != nil {
		return side, err
	}
	if side.Snapshot, err = o.edited(log, side.Snapshot); err != nil {
		return side, err
	}
	if o.here && side.Snapshot.HasRanges() { // which addresses of this machine do not get
		if cfg.Node.InterfaceAddresses, err = host.ServingAddresses(); err != nil {
			return side, err
		}
	}
	o.ShowPhase(c, "resolving %d Services", len(side.Snapshot.Services))
	router := side.Snapshot.Route(cfg.Node)
	side.Routing = router.Routing()
	if o.here && slices.ContainsFunc(side.Snapshot.Services, Announces) {
		o.Router = router
	}
	o.Warnings.notices(log, side.Routing.Notices)
	return side, o.Warnings.Check()
}

// NewAccess returns how a configuration reaches the API server.
func NewAccess(c *cobra.Command, cfg *config.Config) cluster.Access {
	return cluster.Access{ClientConnectionConfiguration: cfg.Kube.ClientConnection, Master: cfg.Master, Context: cfg.Context, Selectors: cfg.Own.HealthChecks, UserAgent: UserAgent(c)}
}

// OpenCluster returns the API server of a configuration, as the source of objects.
func OpenCluster(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*cluster.Cluster, error) {
	client, err := NewAccess(c, cfg).Client(log)
	if err != nil {
		return nil, err
	}
	return NewCluster(client, cfg, log), nil
}

// NewCluster is [OpenCluster] with a client.
func NewCluster(client *cluster.Client, cfg *config.Config, log *slog.Logger) *cluster.Cluster {
	// Messages of client-go with verbosity n have level -n.
	klog.SetSlogLogger(log.With("library", "client-go"))
	return cluster.New(client, cluster.Config{
		NodeConfig: cfg.Node, ProxyName: cfg.Own.ServiceProxyName, HealthChecks: cfg.Own.HealthChecks, Log: log,
	})
}

// ReadObjects reads the objects of files, of an API server, or of both.
func (o *Options) ReadObjects(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*model.Snapshot, error) {
	from := o.Origin(cfg)
	if !from.Cluster {
		return o.filed(c, cfg, log)
	}
	cluster, err := OpenCluster(c, cfg, log)
	if err != nil {
		return nil, err
	}
	own := &model.Snapshot{}
	if from.Files {
		if own, err = o.filed(c, cfg, log); err != nil {
			return nil, err
		}
	}
	o.ShowPhase(c, "reading the API server")
	snapshot, err := cluster.Read(c.Context())
	o.Warnings.count += cluster.State().Warned // the log has them
	if err != nil {
		return nil, err
	}
	joined, hidden := join.Snapshots(own, snapshot)
	for _, warning := range hidden {
		log.Warn(warning)
	}
	o.Warnings.count += len(hidden)
	return joined, nil
}

// filed reads the objects of files.
func (o *Options) filed(c *cobra.Command, cfg *config.Config, log *slog.Logger) (*model.Snapshot, error) {
	reader, err := o.NewReader(c.InOrStdin(), cfg)
	if err != nil {
		return nil, err
	}
	if reader.InForce = o.inForce(); o.IsolateFiles {
		reader.Isolation = files.NewIsolation(nil) // a command keeps nothing
	}
	o.ShowPhase(c, "reading %s", DescribeInputs(o.Files))
	input, err := reader.Load()
	if err != nil {
		return nil, err
	}
	o.leavesOut = reader.LeftOut || len(input.LeftOut) > 0
	o.Warnings.LogInput(log, input)
	return input.Snapshot, nil
}

// Announces reports whether interfaces have addresses of a Service because of nftproxy.
func Announces(s *model.Service) bool { return s.Extra().Announce != "" }

// ShowPhase shows the present step of the command on a terminal, if it takes long.
func (o *Options) ShowPhase(c *cobra.Command, format string, args ...any) {
	if !o.Quiet {
		cli.ShowProgress(c, format, args...)
	}
}

// DescribeInputs names files, with the size of all.
func DescribeInputs(paths []string) string {
	size := int64(0)
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	text := strings.Join(paths, " ")
	if size > 0 {
		text += fmt.Sprintf(" (%.1f MB)", float64(size)/1e6)
	}
	return text
}

// WithKernel calls f with a connection to the kernel of this network namespace.
func WithKernel(f func(*kernel.Conn) error) (err error) {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return f(conn)
}

// WithApplier calls f with an applier for the kernel of this network namespace.
func WithApplier(log *slog.Logger, f func(*apply.Applier) error) error {
	return WithKernel(func(conn *kernel.Conn) error {
		conn.Log = log
		return f(apply.New(conn, log))
	})
}

// ReadRules returns the rules of nftproxy in the kernel of this network namespace.
func ReadRules() (rules *nft.Ruleset, err error) {
	err = WithKernel(func(conn *kernel.Conn) (err error) {
		rules, _, err = conn.Read()
		return err
	})
	return rules, err
}
