package config

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kube-proxy/config/v1alpha1"
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

// remarkAnnounce warns of --announce-nftables if kube-proxy is not replaced
// (12.61).
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

// remarkMode accepts the other modes, so that the configuration of a cluster
// works unchanged, and warns of the differences. Their masqueradeAll applies: pods
// may depend on it. So does the scheduler of the mode ipvs.
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
