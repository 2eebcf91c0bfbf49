package config

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Flags are the settings of one command line, with the names and defaults of kube-proxy.
type Flags struct {
	// ConfigFile is the file that overrides the flags (12.2); empty: none.
	ConfigFile string

	set         *pflag.FlagSet
	kube        *v1alpha1.KubeProxyConfiguration
	own         Own
	master      string
	context     string
	healthzPort int32
	metricsPort int32
	idFiles     [2]string
}

// NewFlags returns flags to be added to set.
func NewFlags(set *pflag.FlagSet) *Flags {
	return &Flags{
		set:         set,
		kube:        newDefaults(),
		own:         Own{Scheduler: model.RoundRobin.String(), AffinitySize: model.DefaultAffinityCapacity, TakeOver: true, Observe: model.ObserveOff.String(), ObserveGroup: model.DefaultObserveGroup, LogConnections: logOff, DNSTimeout: 2 * time.Second, DNSMinTTL: time.Second, DNSMaxTTL: time.Hour, AnnounceInterval: time.Minute, FastPath: model.FastPathOff.String()},
		healthzPort: healthzPort,
		metricsPort: metricsPort,
	}
}

// Given reports whether a flag is on the command line.
func (f *Flags) Given(name string) bool { return f.set.Changed(name) }

// ControlSocket returns the control socket as the command line has it.
func (f *Flags) ControlSocket() string { return f.own.ControlSocket }

// AddRules adds the settings that the rules depend on, and the configuration file.
func (f *Flags) AddRules() {
	k := f.kube
	f.add(declare.Input, &f.ConfigFile, "config", "`file` with a KubeProxyConfiguration; it overrides the flags that it has fields for")
	f.add(declare.Input, &f.own.ServiceProxyName, "service-proxy-name", "serve only Services with this `value` of the label service.kubernetes.io/service-proxy-name (default: Services without the label)")
	f.add(declare.NodeAndPods, &k.HostnameOverride, hostnameOverride, "`name` of this node among the Nodes (default: the host name); takes precedence over --config")
	f.add(declare.NodeAndPods, &k.BindAddress, "bind-address", "`address` of this node, in place of the one in its Node object; nothing is bound to it")
	f.add(declare.NodeAndPods, &k.ClusterCIDR, "cluster-cidr", "`range` of pod addresses, or an IPv4 and an IPv6 range separated by a comma; other traffic to a ClusterIP is masqueraded")
	f.add(declare.NodeAndPods, &k.NodePortAddresses, "nodeport-addresses", "`ranges` of node addresses that serve NodePorts; among them may be \"primary\" for the first address of each family, \"all\", and \"localhost\", where run itself serves NodePorts of TCP", "primary", "all", "localhost")
	f.add(declare.NodeAndPods, (*string)(&k.DetectLocalMode), "detect-local-mode", "how packets of pods are detected: `mode` ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
	f.add(declare.NodeAndPods, &k.DetectLocal.BridgeInterface, "pod-bridge-interface", "`name` of the bridge of the pods, for mode BridgeInterface")
	f.add(declare.NodeAndPods, &k.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "`prefix` of the names of pod interfaces, for mode InterfaceNamePrefix")
	f.add(declare.NodeAndPods, &k.NFTables.MasqueradeAll, "masquerade-all", "masquerade all traffic to ClusterIPs")
	f.add(declare.NodeAndPods, &f.own.MasqueradeFrom, MasqueradeFrom, "`addresses` of this machine to masquerade from, one after the other, or primary for the addresses of this node; the ones that no interface has are left out, and without any, an address of the outgoing interface is used")
	f.add(declare.Balancing, flag.NewMapStringBool(&k.FeatureGates), "feature-gates", "`name=true|false,...` switches of kube-proxy; AllowServiceExternalIPs=false ignores external IPs of Services, KubeProxyNFTablesLocalhostNodePorts=false turns off NodePorts on localhost, and ComponentStatusz and ComponentFlagz affect run", "AllowServiceExternalIPs=false", "ComponentFlagz=false", "ComponentStatusz=false")
	f.add(declare.Balancing, &f.own.Scheduler, "scheduler", "`name` of the scheduler for Services without the annotation nftproxy.dev/scheduler: round-robin, random, source-hash, maglev or maglev-port", model.SchedulerNames...)
	f.add(declare.Balancing, &f.own.AffinitySize, "affinity-size", "`number` of clients that session affinity can remember in each family")
	f.add(declare.Balancing, &f.own.AnswerPing, "answer-ping", "answer echo requests (ping) to ClusterIPs, external IPs and load balancer addresses of Services with usable endpoints; with --load-balancer-cidrs, only external IPs and load balancer addresses in its ranges")
	f.add(declare.Balancing, &f.own.LoadBalancerCIDRs, "load-balancer-cidrs", "`ranges` of load balancer addresses and external IPs; packets to their unused ports are refused, and packets to unused addresses dropped, instead of looping between router and node; addresses of this node are left alone")
	f.add(declare.Refused, &f.own.Observe, Observe, "`level` of the connections that the rules count and log: off; refusals: those that they refuse, with the reason; failures: in addition, samples of those that endpoints may not answer; connections: in addition all, with their outcome", model.ObserveLevels...)
	f.add(declare.Refused, &f.own.ObserveGroup, "observe-group", "`number` of the NFLOG group to which the rules send the headers of these connections")
}

// Names of flags.
const (
	ChangesFile         = "changes-file"
	ConntrackTCPCleanup = "conntrack-tcp-cleanup"
	DrainFile           = "drain-file"
	EndpointMetrics     = "endpoint-metrics"
	FastPath            = "fast-path"
	HealthChecks        = "health-checks"
	KubeContext         = "context"
	MasqueradeFrom      = "masquerade-from"
	Observe             = "observe"
	ServiceMetrics      = "service-metrics"
	hostnameOverride    = "hostname-override"
)

// Values of --log-connections: connections that rules have refused; these, and those that
// endpoints have refused or not answered; all.
const (
	LogRefused = "refused"
	LogFailed  = "failed"
	LogAll     = "all"
	logOff     = "off"
)

// AddCluster adds the connection to the API server.
func (f *Flags) AddCluster() {
	c := &f.kube.ClientConnection
	f.add(declare.APIServer, &c.Kubeconfig, "kubeconfig", "`file` with the address and credentials of the API server (default: the service account of the pod)")
	f.add(declare.APIServer, &f.master, "master", "`URL` of the API server, in place of the one in the kubeconfig")
	f.add(declare.APIServer, &c.QPS, "kube-api-qps", "`number` of requests per second to the API server")
	f.add(declare.APIServer, &c.Burst, "kube-api-burst", "`number` of requests to the API server in a burst")
	f.add(declare.APIServer, &c.ContentType, "kube-api-content-type", "content `type` of requests to the API server", "application/vnd.kubernetes.protobuf", "application/json")
	AddContext(f.set, &f.context)
}

// AddContext adds the context to use of a kubeconfig.
func AddContext(set *pflag.FlagSet, context *string) {
	declare.In(set, declare.APIServer, func() {
		set.StringVar(context, KubeContext, "", "`name` of a context in the kubeconfig (default: its current-context)")
	})
}

// AddLogging adds the flags of the log; those without effect are accepted and hidden.
func (f *Flags) AddLogging() {
	l := &f.kube.Logging
	f.add(declare.Log, logsapi.VerbosityLevelPflag(&l.Verbosity), "v", "`level` of detail in the log: 0 problems and changes, 1 flags as well, 2 every transaction", "0\tproblems and changes", "1\tand the flags", "2\tand every transaction")
	f.add(declare.Log, &l.Format, "logging-format", "`format` of the log: text or json", logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
	f.add(hidden, logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "")
	f.add(hidden, &l.FlushFrequency.Duration.Duration, "log-flush-frequency", "")
	f.add(hidden, &l.Options.Text.SplitStream, "log-text-split-stream", "")
	f.add(hidden, &l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "")
	f.add(hidden, &l.Options.JSON.SplitStream, "log-json-split-stream", "")
	f.add(hidden, &l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "")
}

// AddCounters adds the counters of the rules, with their usage.
func (f *Flags) AddCounters(services, endpoints string) {
	f.add(declare.HealthAndMetrics, &f.own.ServiceMetrics, ServiceMetrics, services)
	f.add(declare.HealthAndMetrics, &f.own.EndpointMetrics, EndpointMetrics, endpoints)
}

// AddDaemon adds the flags that only a daemon needs.
func (f *Flags) AddDaemon() {
	k := f.kube
	f.add(declare.Syncs, &k.NFTables.MinSyncPeriod.Duration, "min-sync-period", "minimum `time` between changes of the rules; changes in between are combined")
	f.add(declare.Syncs, &k.NFTables.SyncPeriod.Duration, "sync-period", "maximum `time` before a failed change of the rules is retried")
	f.add(declare.Syncs, &f.own.TakeOver, "take-over", "remove the rules that kube-proxy left, once nftproxy's are active")
	f.add(declare.Syncs, &f.own.AnnounceNFTables, "announce-nftables", "keep tables \"kube-proxy\" with an empty chain, which Calico's Felix takes for nftables mode, even if kube-proxy left none")
	f.add(declare.Syncs, &f.own.NoTableOwner, "no-table-owner", "let other programs change nftproxy's tables; such changes are repaired")
	f.add(declare.HealthAndMetrics, &k.HealthzBindAddress, "healthz-bind-address", "`address` of the health check server, with or without a port; empty or port 0: none")
	f.add(declare.HealthAndMetrics, &k.MetricsBindAddress, "metrics-bind-address", "`address` of the metrics server, with or without a port; empty or port 0: none")
	f.add(declare.HealthAndMetrics, &f.own.AllowedHosts, "allowed-hosts", "`names` by which clients may call the metrics server, besides its IP addresses, localhost and the name of the node; *.example.com is each name below example.com")
	f.add(declare.HealthAndMetrics, &k.BindAddressHardFail, "bind-address-hard-fail", "exit if a server cannot listen on its address")
	f.add(declare.HealthAndMetrics, &k.EnableProfiling, "profiling", "serve profiles of the process under /debug/pprof of the metrics server")
	f.add(declare.HealthAndMetrics, &f.own.Web, "web", "serve a page with live data for browsers under /web/ of the metrics server")
	f.add(declare.HealthAndMetrics, &f.own.NodeCondition, "node-condition", "keep the condition nftproxy.dev/ServicesProgrammed of the Node up to date, by which other programs keep pods off nodes without rules; needs permission to patch nodes/status")
	f.add(declare.Process, k.OOMScoreAdj, "oom-score-adj", "how likely the kernel kills the process when memory is short: `score` from -1000 to 1000")
	f.add(declare.Process, &f.own.ManageSysctl, "manage-sysctl", "turn on forwarding of the kernel where endpoints are on other machines or in pods; never turns it off")
	f.AddCounters("export metrics of each Service", "count the connections to each endpoint as well, for describe, top, the page of --web and metrics")
	f.AddHealthChecks("check the health of endpoints also for Services of an API server that have no selector and ask for it; files always may")
	f.add(declare.Log, &f.own.LogConnections, "log-connections", "which `connections` have a line in the log: off, refused, failed (refused, or not answered by their endpoint) or all; only connections that --observe shows", logOff, LogRefused, LogFailed, LogAll)
	f.add(declare.APIServer, &f.own.StartJitter, "start-jitter", "maximum random `time` before Services and EndpointSlices are read, if rules of an earlier run are in the kernel; spreads the load of restarts on the API server")
	f.AddFastPath()
	f.AddDrain()
	f.AddChanges()
	f.add(declare.Balances, &f.own.ControlSocket, "control-socket", "unix `socket` for commands of root: with files, \"nftproxy set\", \"add\" and others change servers of Balances there; none: no socket (default: control.sock in the runtime directory of systemd; else net-NAMESPACE.sock in /run/nftproxy, which takes no changes)")
	f.add(declare.Balances, &f.own.HealthDirectory, "health-directory", "`directory` with a file for each Balance, NAMESPACE_NAME, that has 0 while a server is usable and else 1, for keepalived's track_file; empty: none")
	f.add(declare.Balances, &f.own.OnChange, "on-change", "`program` to run at the start and when a Balance gains or loses its last usable server; empty: none")
	f.add(declare.Balances, &f.own.AnnounceInterval, "announce-interval", "`time` between announcements of an address of a Balance with announce, after the first five within 10 s")
	f.addDNS()
	f.addConntrack()
	f.addIgnored()
}

// AddFastPath adds which connections go past the rules, with its usage, and the flag of others that
// keeps some of them with the rules.
func (f *Flags) AddFastPath() {
	f.add(declare.Process, &f.own.ConntrackTCPCleanup, ConntrackTCPCleanup, "also delete conntrack entries of TCP connections to endpoints that are gone; connections of TCP then do not take the fast path")
	f.add(declare.Balancing, &f.own.FastPath, FastPath, "`level` of the established connections that skip the rules of all programs, by way of a flow table of the kernel: off; services: to Services with nftproxy.dev/fast-path: use; all: to all Services, except with avoid; hardware: as all, in network cards that can do it", model.FastPathLevels...)
}

// AddDrain adds the file with drained endpoints, for commands that are about the rules of this machine.
func (f *Flags) AddDrain() {
	f.own.DrainFile = DefaultDrainFile
	f.add(declare.Syncs, &f.own.DrainFile, DrainFile, "`file` with what commands change on this machine: endpoints that \"nftproxy drain\" drains, and servers of \"set\", \"add\" and \"remove\"; empty: none")
}

// minAnnounceInterval is the shortest time between announcements. In the longest one, neighbours still have
// a use for one.
const minAnnounceInterval = time.Second / budget.Announcements

// AddChanges adds the file with changed servers, for commands that are about the rules of this machine.
func (f *Flags) AddChanges() {
	f.own.ChangesFile = DefaultChangesFile
	f.add(declare.Balances, &f.own.ChangesFile, ChangesFile, "`file` in which version 0.2 kept the servers that \"nftproxy set\", \"add\" and \"remove\" have changed; run moves them to --drain-file; empty: none")
}

func (f *Flags) addConntrack() {
	t := &f.kube.Conntrack
	f.add(declare.Process, t.MaxPerCore, "conntrack-max-per-core", "`number` of connections to track per CPU; 0 keeps the present limit")
	f.add(declare.Process, t.Min, "conntrack-min", "minimum `number` of connections to track, regardless of the number of CPUs")
	f.add(declare.Process, &t.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "`timeout` of an idle TCP connection; 0 keeps the present one")
	f.add(declare.Process, &t.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "`timeout` of a half-closed TCP connection; 0 keeps the present one")
	f.add(declare.Process, &t.TCPBeLiberal, "conntrack-tcp-be-liberal", "do not classify TCP packets outside of the window as invalid")
	f.add(declare.Process, &t.UDPTimeout.Duration, "conntrack-udp-timeout", "`timeout` of a UDP flow without replies; 0 keeps the present one")
	f.add(declare.Process, &t.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "`timeout` of a UDP flow with replies; 0 keeps the present one")
}

// addIgnored adds aliases of flags, and flags without effect: a command line for
// kube-proxy must work unchanged (12.8).
func (f *Flags) addIgnored() {
	k := f.kube
	f.add(hidden, (*string)(&k.Mode), "proxy-mode", "")
	f.add(hidden, &k.NFTables.SyncPeriod.Duration, "iptables-sync-period", "")
	f.add(hidden, &k.NFTables.MinSyncPeriod.Duration, "iptables-min-sync-period", "")
	f.add(hidden, &k.ConfigSyncPeriod.Duration, "config-sync-period", "")
	f.add(hidden, k.IPTables.MasqueradeBit, "iptables-masquerade-bit", "")
	f.add(hidden, k.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", "")
	f.add(hidden, &k.IPVS.Scheduler, "ipvs-scheduler", "")
	f.add(hidden, &k.IPVS.ExcludeCIDRs, "ipvs-exclude-cidrs", "")
	f.add(hidden, &k.IPVS.StrictARP, "ipvs-strict-arp", "")
	f.add(hidden, &k.IPVS.SyncPeriod.Duration, "ipvs-sync-period", "")
	f.add(hidden, &k.IPVS.MinSyncPeriod.Duration, "ipvs-min-sync-period", "")
	f.add(hidden, &k.IPVS.TCPTimeout.Duration, "ipvs-tcp-timeout", "")
	f.add(hidden, &k.IPVS.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "")
	f.add(hidden, &k.IPVS.UDPTimeout.Duration, "ipvs-udp-timeout", "")
	f.add(hidden, &k.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "")
	f.add(hidden, &f.healthzPort, "healthz-port", "")
	f.add(hidden, &f.metricsPort, "metrics-port", "")
	f.add(hidden, &f.idFiles[0], "boot-id-file", "")
	f.add(hidden, &f.idFiles[1], "machine-id-file", "")
}

// hidden stands for no group: flags that the help does not show.
const hidden declare.Group = ""

// add adds a flag for the variable at p, whose value is the default, with the values that it takes, unless these are any.
func (f *Flags) add(group declare.Group, p any, name, usage string, values ...string) {
	switch p := p.(type) {
	case *string:
		f.set.StringVar(p, name, *p, usage)
	case *bool:
		f.set.BoolVar(p, name, *p, usage)
	case *int32:
		f.set.Int32Var(p, name, *p, usage)
	case *uint32:
		f.set.Uint32Var(p, name, *p, usage)
	case *float32:
		f.set.Float32Var(p, name, *p, usage)
	case *time.Duration:
		f.set.DurationVar(p, name, *p, usage)
	case *[]string:
		f.set.StringSliceVar(p, name, *p, usage)
	case pflag.Value:
		short := ""
		if len(name) == 1 {
			short = name
		}
		f.set.VarP(p, name, short, usage)
	}
	if g := f.set.Lookup(name); group == hidden {
		g.Hidden = true
	} else {
		declare.Put(g, group)
	}
	if len(values) > 0 {
		declare.Values(f.set, name, values...)
	}
}

// Values returns the effective values of all flags of a command, by name (12.7, 11.4).
func Values(set *pflag.FlagSet) map[string]string {
	out := make(map[string]string)
	set.VisitAll(func(g *pflag.Flag) { out[g.Name] = g.Value.String() })
	return out
}
