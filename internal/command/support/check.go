package support

import (
	"fmt"
	"io"
	"iter"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

type checkOptions struct {
	command.Options
	strict, stay bool
	output       cli.Output
}

func CheckCommand() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check [-f FILE | --kubeconfig FILE | --config FILE]",
		Short: "Check whether this machine is ready to serve",
		Long: `Look for what would keep nftproxy from serving on this machine: missing features
of the kernel, forwarding that is off, firewalls that drop, other programs that
balance connections or translate addresses. Nothing is changed, and no API server is
asked.

Each result is one line: a problem (nothing would work), a warning (they may
not work), unseen (the check could not be made: no access) or ok. Remedies follow.
Problems come first, and the verdict last.

With --config, --kubeconfig, --master, or in a pod, the machine is checked as a
node of a cluster, else as a single machine. With -f, only the
servers of Balances and the endpoints of Services in these files count. Without root,
checks of rules and of the kernel cannot be made.

deploy/kustomize/check runs it on all nodes of a cluster.

Exit code: 0 ready, 1 problems, and with --strict also warnings, and checks that
could not be made, 2 error.`,
		Example: `  nftproxy check
  nftproxy check -f services.yaml
  nftproxy check --config /var/lib/kube-proxy/config.conf
  nftproxy check --strict -o json | jq '.checks[] | select(.level != "ok")'`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.AddFlags(c)
	o.Settings.AddFastPath()
	c.Flags().BoolVar(&o.strict, "strict", false, "exit with 1 also after warnings, and checks that could not be made")
	c.Flags().BoolVar(&o.stay, "stay", false, "if the machine is ready, wait for SIGTERM or SIGINT, for a DaemonSet whose pods are to run on machines that are ready")
	o.output.Add(c, "")
	return c
}

func (o *checkOptions) run(c *cobra.Command) error {
	use, err := o.use(c)
	if err != nil {
		return err
	}
	r := machine.NewReport(machine.Read(), use)
	if o.stay { // before the report, which others wait for
		_, stop := cli.EndAtSignal(c)
		defer stop()
	}
	isWrong := !r.Ready || o.strict && r.Warnings+r.Unseen > 0
	err = o.output.PrintJudged(c.OutOrStdout(), r, isWrong, func(w io.Writer) error { return r.Print(w, o.output.Paint) })
	if err == nil && o.stay {
		<-c.Context().Done()
	}
	return err
}

func (o *checkOptions) use(c *cobra.Command) (machine.Use, error) {
	cfg, log, err := o.LoadConfig(c)
	if err != nil {
		return machine.Use{}, err
	}
	use := useOf(cfg)
	if cfg.Node.FastPath.Level != model.FastPathOff {
		use.FastPath = &machine.Trial{Err: fastpath.Tested(c.Context())}
	}
	if cfg.Node.Observe.Refusals() {
		use.Observe = &machine.Trial{Err: machine.CanObserve()}
	}
	// A configuration file of kube-proxy may name no kubeconfig: in a pod it has none.
	use.Cluster = o.Origin(cfg).Cluster
	if len(o.Files) == 0 {
		use.Cluster = use.Cluster || cfg.File != nil || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
		if !use.Cluster { // its files may have both
			use.Words = words.Mixed
		}
		return use, nil
	}
	files, err := o.NewReader(c.InOrStdin(), cfg)
	if err != nil {
		return use, err
	}
	snapshot, err := files.Snapshot(log)
	if err != nil {
		return use, fmt.Errorf("read the files: %w", err)
	}
	use.Words = snapshot.Words()
	node, known := snapshot.Node(cfg.Node.NodeName)
	use.MasqueradeFrom = cfg.Node.MasqueradeAddresses(node)
	use.Ranges.Services = snapshot.ServiceCIDRs
	if known {
		use.Ranges.Pods = node.PodCIDRs
	}
	use.Addresses = func(yield func(netip.Addr) bool) {
		for _, r := range model.Resolve(snapshot, cfg.Node).Routes {
			if r.Kind != model.NodePort && !command.Announces(r.Service) && !yield(r.Frontend.Address) {
				return
			}
		}
	}
	use.Endpoints, use.Relayed = hosts(snapshot, false), hosts(snapshot, true)
	return use, nil
}

// hosts returns the addresses of endpoints: of Services with a relay, or of all others.
func hosts(s *model.Snapshot, relayed bool) iter.Seq[netip.Addr] {
	relays := make(map[model.ServiceName]bool)
	for _, service := range s.Services {
		relays[service.Name] = service.Extra().Relay != model.NoRelay
	}
	return func(yield func(netip.Addr) bool) {
		for _, slice := range s.Slices {
			if relays[slice.ServiceName()] != relayed {
				continue
			}
			for i := range slice.Hosts {
				if !yield(slice.Hosts[i].Address) {
					return
				}
			}
		}
	}
}

func useOf(cfg *config.Config) machine.Use {
	use := machine.Use{
		BesideAnother: cfg.Node.BesideAnother, MasqueradeAll: cfg.Node.MasqueradeAll, MasqueradeFrom: cfg.Node.MasqueradeAddresses(nil), PodRanges: cfg.Node.ClusterCIDRs,
		Ranges: machine.Ranges{LoadBalancers: cfg.Node.LoadBalancerCIDRs}, ObserveGroup: cfg.Node.Observe.Group,
		ClosesTCP: cfg.Node.FastPath.Closes,
	}
	for _, p := range use.PodRanges {
		use.Families = append(use.Families, model.FamilyOf(p.Addr()))
	}
	return use
}
