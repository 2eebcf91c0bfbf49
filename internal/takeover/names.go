package takeover

import (
	"slices"
	"strings"
)

// tables are those of iptables that kube-proxy has chains in.
var tables = []string{"nat", "filter", "mangle"}

// Chains of kube-proxy in iptables and IPVS mode (12.59). KUBE-MARK-DROP,
// KUBE-FIREWALL, KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT are the kubelet's;
// network plugins have more names that begin with KUBE.
var (
	chainNames = []string{
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ",
		"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
		"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER",
	}
	chainPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"}
)

// isKubeProxys tells whether a chain of an iptables table is kube-proxy's.
func isKubeProxys(chain string) bool {
	return slices.Contains(chainNames, chain) ||
		slices.ContainsFunc(chainPrefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// ipsetNames are the ipsets of IPVS mode without their beginning, which is
// KUBE- or, for IPv6, KUBE-6-. Other ipsets that begin so are those of network
// plugins.
var ipsetNames = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "IPVS-IPS", "HEALTH-CHECK-NODE-PORT",
	"LOAD-BALANCER", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR",
	"NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP",
	"NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH",
}
