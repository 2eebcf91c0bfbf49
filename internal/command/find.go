package command

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// Finder finds the running nftproxy. For root that is a process that it has identified, at its
// control socket. Other users ask for pages: at the address that the flags name, or at the default one, or
// where the configuration of a process on this machine puts it.
type Finder struct {
	Address string // of --metrics-bind-address
	config  string // the daemon's configuration file
	// Acts reports that the command acts on the answer, or plans to. It then asks only an identified
	// process, for every user and with every flag.
	Acts bool
}

// AddAddress adds --metrics-bind-address.
func (d *Finder) AddAddress(f *pflag.FlagSet) {
	declare.In(f, declare.HealthAndMetrics, func() {
		f.StringVar(&d.Address, "metrics-bind-address", "", "`address` where the running nftproxy serves metrics, with or without a port (default: as root its control socket, else 127.0.0.1:10249, or as its command line and configuration say)")
	})
}

// AddConfig adds --config, for the file of the running nftproxy.
func (d *Finder) AddConfig(c *cobra.Command) {
	declare.In(c.Flags(), declare.Input, func() {
		c.Flags().StringVar(&d.config, "config", "", "configuration `file` of the running nftproxy, which has that address")
	})
}

// Ask calls f with clients of a daemon, until one answers, as [api.Ask] does. Root reads the pages of
// another program only if a flag names its address.
func (d *Finder) Ask(f func(*api.Client) error) error {
	given, err := d.given()
	switch {
	case err != nil:
		return err
	case d.Acts || os.Geteuid() == 0 && !given.IsValid():
		return askIdentified(given, f)
	}
	return api.Ask(given, daemonProcesses, f)
}

// Fetch asks a daemon for a document, as [Finder.Ask] does.
func Fetch[T any](d *Finder, ask func(*api.Client) (T, error)) (document T, err error) {
	err = d.Ask(func(client *api.Client) (err error) {
		document, err = ask(client)
		return err
	})
	return document, err
}

// FetchOrRead is [Fetch], and reads the kernel's tables if no daemon answers; noDaemon is the reason then, in one line.
// Without tables, the error says what else to do.
func FetchOrRead[T any](d *Finder, ask func(*api.Client) (*T, error), read func(*kernel.Conn) (*T, error), advice string) (document *T, noDaemon string, err error) {
	document, err = Fetch(d, ask)
	if !errors.Is(err, api.ErrNoDaemon) {
		return document, "", err
	}
	reason := err
	err = WithKernel(func(conn *kernel.Conn) (err error) {
		document, err = read(conn)
		return err
	})
	switch unknown := (*api.UnknownError)(nil); {
	case errors.As(err, &unknown):
		return nil, "", err
	case err != nil:
		return nil, "", errors.Join(reason, err)
	case document == nil:
		return nil, "", fmt.Errorf("%w\nand the kernel has no tables of nftproxy: start \"nftproxy run\"%s", reason, advice)
	}
	return document, OneLine(reason), nil
}

// OneLine returns the text of an error without line breaks.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// given returns the address that the flags name, or the zero value.
func (d *Finder) given() (address netip.AddrPort, err error) {
	switch {
	case d.Address != "" && d.config != "":
		return address, errors.New("--metrics-bind-address and --config exclude each other: both name the address of the running nftproxy")
	case d.Address != "":
		if address, err = api.ParseAddress(d.Address); err != nil {
			err = fmt.Errorf("--metrics-bind-address: %w", err)
		}
		return address, err
	case d.config == "":
		return address, nil
	}
	settings := config.NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	settings.ConfigFile = d.config
	return configured(settings)
}

// daemonProcesses yields the processes that may be a running nftproxy, with their addresses.
func daemonProcesses(yield func(api.Process) bool) {
	for _, p := range daemons() {
		address, err := metricsAddress(p)
		if !yield(api.Process{Name: p.String(), Address: address, Err: err}) {
			return
		}
	}
}

// daemons returns the processes that may be a running nftproxy, the owner of the tables
// first.
func daemons() []host.Process {
	all := host.Processes("nftproxy", "kube-proxy")
	var owner host.Process
	_ = WithKernel(func(conn *kernel.Conn) error { // it needs a privilege that reading /proc does not need
		owned, err := conn.OwnedByOther()
		if owned != nil {
			owner = owned.Owner
		}
		return err
	})
	if owner.PID == 0 {
		return all
	}
	return append([]host.Process{owner}, slices.DeleteFunc(all, func(p host.Process) bool { return p.PID == owner.PID })...)
}

// metricsAddress returns where a process serves metrics; the zero value if it is not
// "nftproxy run".
func metricsAddress(p host.Process) (netip.AddrPort, error) {
	o, unknown := runFlagsOf(p)
	if o == nil {
		return netip.AddrPort{}, nil
	}
	switch shared, err := p.SharesNetwork(); {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("runs, and its network namespace cannot be read (%w): run this as root, or name its address with --metrics-bind-address", err)
	case !shared:
		return netip.AddrPort{}, elsewhere(p)
	}
	if unknown != nil {
		return netip.AddrPort{}, fmt.Errorf("runs, with flags that this version does not have (%w): name its address with --metrics-bind-address", unknown)
	}
	if o.Settings.ConfigFile != "" {
		o.Settings.ConfigFile = p.Path(o.Settings.ConfigFile)
	}
	address, err := configured(o.Settings)
	if err != nil {
		return address, fmt.Errorf("runs: %w", err)
	}
	return address, nil
}

// elsewhere returns the error of a process in another network namespace.
func elsewhere(p host.Process) error {
	return fmt.Errorf("%w: ask it there, with \"nsenter -t %d -n nftproxy ...\"", api.ErrElsewhere, p.PID)
}

// DaemonFiles returns the files that the nftproxy reads that runs here; none: it reads an API server,
// or none runs.
func DaemonFiles() (files []string) {
	for _, p := range daemons() {
		o, unknown := runFlagsOf(p)
		if o == nil || p.CheckControl() != nil {
			continue
		}
		if unknown != nil || !o.Origin(&config.Config{}).Files || o.Origin(&config.Config{}).Cluster || slices.Contains(o.Files, "-") {
			return nil
		}
		for _, f := range o.Files {
			files = append(files, p.Path(f))
		}
		return files
	}
	return nil
}

func configured(settings *config.Flags) (netip.AddrPort, error) {
	cfg, err := settings.Load()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read its configuration: %w", err)
	}
	host, port, err := net.SplitHostPort(cfg.MetricsAddress())
	if err != nil {
		return netip.AddrPort{}, errors.New("the configuration has no metrics server, which answers this: set --metrics-bind-address or metricsBindAddress")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port %q of the metrics server: %w", port, err)
	}
	a, err := netip.ParseAddr(host)
	return netip.AddrPortFrom(a, uint16(n)), err
}

const RunName = "run"

// ArgumentsOf returns the arguments of a command line. Under the name kube-proxy
// the program is "nftproxy run", so that a link of that name takes its place in
// an image (14.9).
func ArgumentsOf(argv []string) []string {
	if filepath.Base(argv[0]) == "kube-proxy" {
		return append([]string{RunName}, argv[1:]...)
	}
	return argv[1:]
}

// RunFlags are the flags of "nftproxy run". Other commands read those of a running nftproxy.
type RunFlags struct {
	Options
	Version           versionFlag
	WriteConfigTo     string
	Cleanup, InitOnly bool
}

func (o *RunFlags) AddRunFlags(c *cobra.Command) {
	o.AddFlags(c)
	o.Settings.AddDaemon()
	addVersionFlag(c, &o.Version)
	c.Flags().StringVar(&o.WriteConfigTo, "write-config-to", "", "write the effective configuration to this `file`, and exit")
	o.addIsolation(c, "an invalid file keeps its last valid content, or is skipped, and the other files are served")
	c.Flags().BoolVar(&o.Cleanup, "cleanup", false, "remove the rules and the leftovers of kube-proxy, and exit")
	c.Flags().BoolVar(&o.InitOnly, "init-only", false, "perform the privileged preparations, write no rules, and exit")
}

// runFlagsOf returns the flags of a process, with an error about flags that this version does not have; nil: it is not
// "nftproxy run", or has ended.
func runFlagsOf(p host.Process) (*RunFlags, error) {
	argv, err := p.Arguments()
	if err != nil {
		return nil, nil
	}
	args := ArgumentsOf(argv)
	if len(args) == 0 || args[0] != RunName {
		return nil, nil
	}
	var o RunFlags
	c := &cobra.Command{Use: RunName}
	c.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	o.AddRunFlags(c)
	return &o, c.ParseFlags(args[1:])
}
