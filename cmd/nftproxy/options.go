package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/spf13/cobra"
)

// options are the flags that describe the input and the node. Flags that
// kube-proxy has carry its names.
type options struct {
	files             []string
	hostnameOverride  string
	bindAddress       string
	clusterCIDR       string
	nodePortAddresses []string
	detectLocalMode   string
	podBridge         string
	podPrefix         string
	masqueradeAll     bool
	scheduler         string
	affinityCapacity  uint32
	proxyName         string
	cluster           clusterOptions
	logs              logOptions
}

func (o *options) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with Services, EndpointSlices and Nodes, - for standard input; can be given several times")
	f.StringVar(&o.hostnameOverride, "hostname-override", "", "`name` of this node among the Nodes (default: the host name)")
	f.StringVar(&o.bindAddress, "bind-address", "", "`address` of this node, in place of the one in its Node object")
	f.StringVar(&o.clusterCIDR, "cluster-cidr", "", "`range` of pod addresses, or an IPv4 and an IPv6 range separated by a comma; traffic from elsewhere to a ClusterIP is masqueraded")
	f.StringSliceVar(&o.nodePortAddresses, "nodeport-addresses", []string{"primary"}, "`ranges` of node addresses that serve NodePorts, or \"primary\" for the first address of each family")
	f.StringVar(&o.detectLocalMode, "detect-local-mode", "ClusterCIDR", "how packets of pods are recognised: `mode` ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.StringVar(&o.podBridge, "pod-bridge-interface", "", "`name` of the bridge of the pods, for mode BridgeInterface")
	f.StringVar(&o.podPrefix, "pod-interface-name-prefix", "", "`beginning` of the names of pod interfaces, for mode InterfaceNamePrefix")
	f.BoolVar(&o.masqueradeAll, "masquerade-all", false, "masquerade all traffic to ClusterIPs")
	f.StringVar(&o.scheduler, "scheduler", "round-robin", "`name` of the scheduler for Services without the annotation nftproxy.dev/scheduler: round-robin, random or source-hash")
	f.Uint32Var(&o.affinityCapacity, "affinity-size", model.DefaultAffinityCapacity, "`number` of clients that session affinity can remember in each family")
	f.StringVar(&o.proxyName, "service-proxy-name", "", "serve only Services with this `value` of the label service.kubernetes.io/service-proxy-name (default: Services without the label)")
	o.logs.addFlags(c)
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // fails only for an unknown flag
}

// source returns the files to read.
func (o *options) source(stdin io.Reader) (*source.Files, error) {
	if len(o.files) == 0 {
		return nil, errors.New("no input: name a file with -f, or - for standard input, for example\n" +
			"  kubectl get services,endpointslices,nodes -A -o yaml | nftproxy render -f -\n" +
			"(\"run\" can follow an API server instead: --kubeconfig)")
	}
	return &source.Files{Paths: o.files, Stdin: stdin, ProxyName: o.proxyName}, nil
}

// config checks the flags about the node and reports all mistakes together.
func (o *options) config() (model.Config, error) {
	c := model.Config{MasqueradeAll: o.masqueradeAll, AffinityCapacity: o.affinityCapacity, BesideAnother: o.proxyName != ""}
	var errs [7]error
	c.NodeName, errs[0] = nodeName(o.hostnameOverride)
	c.BindAddress, errs[1] = parseBindAddress(o.bindAddress)
	c.ClusterCIDRs, errs[2] = parseClusterCIDR(o.clusterCIDR)
	c.NodePortAddresses, errs[3] = parseNodePortAddresses(o.nodePortAddresses)
	c.DetectLocal, c.PodInterface, errs[4] = o.detectLocal()
	c.Scheduler, errs[5] = model.ParseScheduler(o.scheduler)
	if errs[5] != nil {
		errs[5] = fmt.Errorf("--scheduler: %w", errs[5])
	}
	if o.affinityCapacity == 0 {
		errs[6] = errors.New("--affinity-size: 0 clients cannot be remembered: use 1 or more")
	}
	return c, errors.Join(errs[:]...)
}

// interfaceAddresses returns where the addresses of this machine come from, if
// NodePorts depend on them: "primary" is an address of the Node object.
func (o *options) interfaceAddresses() func() ([]netip.Addr, error) {
	if slices.Equal(o.nodePortAddresses, []string{"primary"}) {
		return nil
	}
	return agent.InterfaceAddresses
}

// detectLocal returns the mode and the interface, which the modes for
// interfaces need (7.7).
func (o *options) detectLocal() (model.DetectMode, string, error) {
	mode, err := model.ParseDetectMode(o.detectLocalMode)
	if err != nil {
		return 0, "", fmt.Errorf("--detect-local-mode: %w", err)
	}
	name, flag := "", ""
	switch mode {
	case model.DetectBridgeInterface:
		name, flag = o.podBridge, "--pod-bridge-interface"
	case model.DetectInterfaceNamePrefix:
		name, flag = o.podPrefix, "--pod-interface-name-prefix"
	default:
		return mode, "", nil
	}
	if name == "" {
		return 0, "", fmt.Errorf("%s: mode %s needs it", flag, o.detectLocalMode)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"*/\`, r) }) {
		return 0, "", fmt.Errorf("%s: %q is no name of an interface", flag, name)
	}
	return mode, name, nil
}

// nodeName returns the name of this node as Kubernetes spells it (12.40).
func nodeName(override string) (string, error) {
	name := override
	if override == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("find host name: %w; give it with --hostname-override", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("--hostname-override: a name of blanks only")
	}
	return name, nil
}

func parseBindAddress(s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("--bind-address: %q is not an IP address (no port, no brackets)", s)
	}
	return a.Unmap(), nil
}

// parseClusterCIDR accepts one range, or one of each family in any order (7.1).
func parseClusterCIDR(s string) ([]netip.Prefix, error) {
	if s == "" {
		return nil, nil
	}
	var out []netip.Prefix
	for _, text := range strings.Split(s, ",") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr: %q is not a range such as 10.128.0.0/9", text)
		}
		for _, other := range out {
			if model.FamilyOf(other.Addr()) == model.FamilyOf(p.Addr()) {
				return nil, fmt.Errorf("--cluster-cidr: %s and %s are of one family: give at most one range of each", other, p)
			}
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// parseNodePortAddresses returns nothing for "primary", which must stand alone
// (6.1).
func parseNodePortAddresses(list []string) ([]netip.Prefix, error) {
	if len(list) == 1 && list[0] == "primary" {
		return nil, nil
	}
	var out []netip.Prefix
	for _, text := range list {
		if text == "primary" {
			return nil, errors.New("--nodeport-addresses: \"primary\" cannot be combined with ranges")
		}
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--nodeport-addresses: %q is not a range such as 192.168.0.0/16", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// ruleset reads the files and returns the rules they ask for. What the files
// say in vain goes to the log. addresses, unless nil, tells the addresses of
// the node's interfaces.
func (o *options) ruleset(c *cobra.Command, addresses func() ([]netip.Addr, error)) (*render.Ruleset, error) {
	log, err := o.logs.logger(c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	if addresses != nil {
		if config.InterfaceAddresses, err = addresses(); err != nil {
			return nil, err
		}
	}
	files, err := o.source(c.InOrStdin())
	if err != nil {
		return nil, err
	}
	snapshot, err := load(files, log)
	if err != nil {
		return nil, err
	}
	routing := model.Resolve(snapshot, config)
	for _, n := range routing.Notices {
		log.Warn(n.Message, "object", n.Object)
	}
	return render.Render(routing), nil
}

// load reads the files and logs their warnings.
func load(files *source.Files, log *slog.Logger) (*model.Snapshot, error) {
	input, err := files.Load()
	if err != nil {
		return nil, err
	}
	for _, w := range input.Warnings {
		log.Warn(w)
	}
	return input.Snapshot, nil
}
