package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/status"
)

// daemonFinder finds the running nftproxy: at the address that the flags name, or at the
// default one, or where the configuration of a process on this machine puts it.
type daemonFinder struct {
	address string // of --metrics-bind-address
	config  string // the daemon's configuration file
}

// defaultMetricsAddress is where a daemon answers unless it is configured otherwise.
var defaultMetricsAddress = netip.MustParseAddrPort("127.0.0.1:10249")

func (d *daemonFinder) addAddress(f *pflag.FlagSet) {
	f.StringVar(&d.address, "metrics-bind-address", "", "`address` where the running nftproxy serves metrics, with or without a port (default: 127.0.0.1:10249, else as the command line and the configuration of the running process say)")
}

func (d *daemonFinder) addConfig(c *cobra.Command) {
	c.Flags().StringVar(&d.config, "config", "", "configuration `file` of the running nftproxy, which has that address")
	_ = c.MarkFlagFilename("config") // fails only for an unknown flag
}

// ask calls f with addresses where a daemon may answer, until one does: until f returns
// another error than [status.ErrNoDaemon].
func (d *daemonFinder) ask(f func(netip.AddrPort) error) error {
	first, given, err := d.given()
	if err != nil {
		return err
	}
	failed := f(first)
	if given || !errors.Is(failed, status.ErrNoDaemon) {
		return failed
	}
	asked := []netip.AddrPort{first}
	var here, elsewhere []error
	for _, p := range daemons() {
		address, err := metricsAddress(p)
		switch {
		case errors.Is(err, errElsewhere):
			elsewhere = append(elsewhere, fmt.Errorf("process %s %w: ask it there, with \"nsenter -t %d -n nftproxy ...\"", p, err, p.PID))
			continue
		case err != nil:
			here = append(here, fmt.Errorf("process %s %w", p, err))
			continue
		case !address.IsValid() || slices.Contains(asked, address):
			continue
		}
		asked = append(asked, address)
		err = f(address)
		if !errors.Is(err, status.ErrNoDaemon) {
			return err
		}
		here = append(here, fmt.Errorf("process %s: %w", p, err))
	}
	if len(here) == 0 && len(elsewhere) > 0 {
		here = elsewhere[:1] // one shows what to do
	}
	return errors.Join(append([]error{failed}, here...)...)
}

// errElsewhere means that an address of a process is not reachable from here.
var errElsewhere = errors.New("runs in another network namespace")

// given returns the address that the flags name, or the default.
func (d *daemonFinder) given() (address netip.AddrPort, given bool, err error) {
	switch {
	case d.address != "" && d.config != "":
		return address, false, errors.New("--metrics-bind-address and --config exclude each other: both name the address of the running nftproxy")
	case d.address != "":
		address, err = parseAddress(d.address)
		return address, true, err
	case d.config == "":
		return defaultMetricsAddress, false, nil
	}
	settings := config.NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	settings.ConfigFile = d.config
	address, err = configured(settings)
	return address, true, err
}

// parseAddress parses an address with or without a port.
func parseAddress(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, defaultMetricsAddress.Port()), nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return address, fmt.Errorf("--metrics-bind-address: %q is not an address: write it like 127.0.0.1:10249 or [::1]:10249", text)
	}
	return address, nil
}

// daemons returns the processes that may be a running nftproxy, the owner of the tables
// first.
func daemons() []host.Process {
	all := host.Processes("nftproxy", "kube-proxy")
	var owner host.Process
	_ = withKernel(func(conn *kernel.Conn) error { // it needs a privilege that reading /proc does not need
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
	argv, err := p.Arguments()
	if err != nil {
		return netip.AddrPort{}, nil // it has ended
	}
	args := arguments(argv)
	if len(args) == 0 || args[0] != runName {
		return netip.AddrPort{}, nil
	}
	switch shared, err := p.SharesNetwork(); {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("runs, and its network namespace cannot be read (%w): run this as root, or name its address with --metrics-bind-address", err)
	case !shared:
		return netip.AddrPort{}, errElsewhere
	}
	var o runOptions
	c := &cobra.Command{Use: runName}
	c.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	o.addRunFlags(c)
	if err := c.ParseFlags(args[1:]); err != nil {
		return netip.AddrPort{}, fmt.Errorf("runs, with flags that this version does not have (%w): name its address with --metrics-bind-address", err)
	}
	if o.settings.ConfigFile != "" {
		o.settings.ConfigFile = p.Path(o.settings.ConfigFile)
	}
	address, err := configured(o.settings)
	if err != nil {
		return address, fmt.Errorf("runs: %w", err)
	}
	return address, nil
}

// configured returns the address of the metrics server in a configuration.
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
