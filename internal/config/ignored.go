package config

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Modes of kube-proxy.
const (
	modeNFTables v1alpha1.ProxyMode = "nftables"
	modeIPVS     v1alpha1.ProxyMode = "ipvs"
)

var otherModes = []v1alpha1.ProxyMode{"iptables", modeIPVS, "kernelspace"}

// ignored are the fields that have no effect, by name or prefix, and why (12.8).
var ignored = []struct{ prefix, why string }{
	{"nftables.masqueradeBit", "masquerading uses no packet marks"},
	{"configSyncPeriod", "objects are not read again without a change"},
	{"iptables.localhostNodePorts", "it is for the mode iptables; \"localhost\" in nodePortAddresses serves NodePorts on loopback addresses, and nothing else does"},
	{"iptables.", "it is for the mode iptables"},
	{"ipvs.tcpTimeout", "conntrack.tcpEstablishedTimeout is the timeout of connections"},
	{"ipvs.tcpFinTimeout", "conntrack.tcpCloseWaitTimeout is the timeout of half-closed connections"},
	{"ipvs.udpTimeout", "conntrack.udpStreamTimeout and conntrack.udpTimeout are the timeouts of UDP flows"},
	{"ipvs.excludeCIDRs", "virtual servers of other programs always stay"},
	{"ipvs.strictARP", "addresses of Services are no addresses of the node, so it does not answer ARP for them"},
	{"ipvs.", "it is for the mode ipvs"},
	{"winkernel.", "it is for Windows"},
	{"windowsRunAsService", "it is for Windows"},
	{"portRange", "no proxy uses it any more"},
	{"showHiddenMetricsForVersion", "no metric is hidden"},
	{"logging.vmodule", "the log has no levels for files"},
	{"logging.flushFrequency", "the log is not buffered"},
	{"logging.options.", "the log is one stream and not buffered"},
}

func (c *Config) remarkIgnored(f *Flags) {
	noIPVS := c.Kube.Mode == modeIPVS && !c.Feature(gateIPVS, true)
	c.remarkMode(f)
	given, byDefault := leafFields(&c.Kube), leafFields(newDefaults())
	for _, field := range slices.Sorted(maps.Keys(given)) {
		if equality.Semantic.DeepEqual(given[field].Interface(), byDefault[field].Interface()) {
			continue
		}
		for _, i := range ignored {
			if field == i.prefix || strings.HasPrefix(field, i.prefix) && strings.HasSuffix(i.prefix, ".") {
				c.addRemark("setting has no effect", c.fieldAttributes(field, "because", i.why)...)
				break
			}
		}
	}
	c.remarkGates(noIPVS)
	c.remarkAnnounce()
	for _, name := range []string{"boot-id-file", "machine-id-file"} {
		if f.Given(name) {
			c.addRemark("setting has no effect", "flag", "--"+name, "because", "no proxy uses it any more")
		}
	}
}

// remarkAnnounce warns of --announce-nftables if kube-proxy is not replaced (12.61).
func (c *Config) remarkAnnounce() {
	if !c.Own.AnnounceNFTables || c.Own.ServiceProxyName == "" && c.Own.TakeOver {
		return
	}
	why := "another proxy runs beside this one: --service-proxy-name"
	if c.Own.ServiceProxyName == "" {
		why = "kube-proxy is not replaced: --take-over=false"
	}
	c.addRemark("setting has no effect", "flag", "--announce-nftables", "because", why)
}

func (c *Config) fieldAttributes(field string, more ...any) []any {
	args := []any{"field", field}
	if c.File != nil {
		args = append(args, "file", c.File.Path)
	} else if name := flagOf(field); name != "" {
		args = append(args, "flag", name)
	}
	return append(args, more...)
}

// remarkMode accepts the other modes, so that the configuration of a cluster works unchanged, and warns of the
// differences. Their masqueradeAll applies: pods may depend on it. So does the scheduler of the mode ipvs.
func (c *Config) remarkMode(f *Flags) {
	k := &c.Kube
	if !slices.Contains(otherModes, k.Mode) {
		return
	}
	args := c.fieldAttributes("mode", "mode", k.Mode)
	if slices.Equal(k.NodePortAddresses, []string{primary}) {
		args = append(args, "node-ports", "only on the node's first address of each family, because nodePortAddresses is not set")
	}
	c.addRemark("this proxy always uses nftables", args...)
	if k.Mode == modeIPVS {
		c.useIPVSScheduler(f)
	}
	k.Mode = modeNFTables
	if k.IPTables.MasqueradeAll && !k.NFTables.MasqueradeAll {
		c.addRemark("masqueradeAll of the other mode applies", c.fieldAttributes("iptables.masqueradeAll")...)
		k.NFTables.MasqueradeAll, k.IPTables.MasqueradeAll = true, false
	}
}

// gates are the feature gates that kube-proxy reads itself or by its libraries, and why
// they have no effect here; empty: they have one. Others belong to other programs of
// Kubernetes (cmd/kube-proxy, pkg/proxy and k8s.io/component-base in Kubernetes 1.37).
var gates = map[string]string{
	GateStatusz:                     "",
	GateFlagz:                       "",
	gateExternalIPs:                 "",
	gateLocalhost:                   "",
	gateIPVS:                        "it is for the mode ipvs",
	"NFTablesNetlink":               "rules are always written with netlink, never by the command nft",
	"NFTablesProxyMode":             "nftables is the only mode",
	"PreferSameTrafficDistribution": "hints for zones and nodes in EndpointSlices always count",
	"MultiCIDRServiceAllocator":     "ServiceCIDRs are read wherever the API server has them",
	"RelaxedServiceNameValidation":  "Services may have any name that the API server accepts",
	"StrictIPCIDRValidation":        "the API server checks addresses; malformed ones of old objects are reported",
	"WatchListClient":               "objects are read in lists, which cost the API server less",
	"ContextualLogging":             onlyLog,
	"LoggingAlphaOptions":           onlyLog,
	"LoggingBetaOptions":            onlyLog,
	"WinDSR":                        onlyWindows,
	"WinOverlay":                    onlyWindows,
}

const (
	gateIPVS    = "KubeProxyIPVS"
	onlyLog     = "it is about the log of kube-proxy"
	onlyWindows = "it is for Windows"
)

// remarkGates has a word on every gate that has no effect (12.8). With noIPVS, the
// configuration has a mode that its own gate turns off.
func (c *Config) remarkGates(noIPVS bool) {
	for _, name := range slices.Sorted(maps.Keys(c.Kube.FeatureGates)) {
		why, known := gates[name]
		switch {
		case known && why == "":
			continue
		case !known:
			why = "nothing depends on it"
		case name == gateIPVS && noIPVS:
			why = "it refuses the mode ipvs, in which kube-proxy would not start; the mode here is nftables"
		}
		c.addRemark("feature gate has no effect", c.fieldAttributes("featureGates."+name, "because", why)...)
	}
}

const (
	// notCounted is why schedulers by load cannot be carried out.
	notCounted = "nftables does not count the open connections of endpoints"
	fieldIPVS  = "ipvs.scheduler"
)

// ipvsSchedulers are the schedulers of IPVS that have a counterpart, or why others have
// none. kube-proxy gives all endpoints weight 1, and sets the flag mh-port for mh, but
// not sh-port for sh (pkg/proxy/ipvs/proxier.go in Kubernetes 1.37).
var ipvsSchedulers = map[string]struct {
	scheduler model.Scheduler
	why       string
}{
	"rr":    {model.RoundRobin, ""},
	"wrr":   {model.RoundRobin, ""},
	"sh":    {model.SourceHash, ""},
	"mh":    {model.MaglevPort, ""},
	"dh":    {model.RoundRobin, "all connections to a Service have the same destination"},
	"lc":    {model.RoundRobin, notCounted},
	"wlc":   {model.RoundRobin, notCounted},
	"sed":   {model.RoundRobin, notCounted},
	"nq":    {model.RoundRobin, notCounted},
	"lblc":  {model.RoundRobin, notCounted},
	"lblcr": {model.RoundRobin, notCounted},
	"fo":    {model.RoundRobin, "all endpoints have the same weight"},
	"ovf":   {model.RoundRobin, notCounted},
	"twos":  {model.RoundRobin, notCounted},
}

// useIPVSScheduler takes the scheduler of the mode ipvs over, or says why not. A flag of
// ours takes precedence (3.51).
func (c *Config) useIPVSScheduler(f *Flags) {
	name := c.Kube.IPVS.Scheduler
	if name == "" {
		return
	}
	s, known := ipvsSchedulers[name]
	switch {
	case f.Given("scheduler"):
		c.addRemark("setting has no effect", c.fieldAttributes(fieldIPVS, "because", "--scheduler is given")...)
	case !known:
		c.addRemark("unknown scheduler of the mode ipvs", c.fieldAttributes(fieldIPVS, "ipvs", name, "scheduler", c.Own.Scheduler)...)
	default:
		c.Own.Scheduler = s.scheduler.String()
		args := c.fieldAttributes(fieldIPVS, "ipvs", name, "scheduler", c.Own.Scheduler)
		switch {
		case s.why != "":
			c.addRemark("the scheduler of the mode ipvs has no counterpart", append(args, "because", s.why)...)
		case s.scheduler != model.RoundRobin:
			c.addRemark("the scheduler of the mode ipvs applies", args...)
		}
	}
	c.Kube.IPVS.Scheduler = "" // it is no longer without effect
}
