package machine

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// writer is a program that writes rules, by the names that it gives them.
type writer struct {
	name     string
	tables   []string
	prefixes []string // of chains
	words    []string // in the text of its rules, in tables of others
}

const hostPorts = "host ports of CNI plugins"

// writers are programs whose rules may be beside ours.
var writers = []writer{
	{name: "nftproxy", tables: []string{nft.TableName, nft.RelayTable, fastpath.TableName}},
	{name: "Docker", tables: []string{"docker-bridges"}, prefixes: []string{"DOCKER"}, words: []string{"docker0"}},
	{name: "Podman", tables: []string{"netavark"}, prefixes: []string{"NETAVARK"}},
	{name: "firewalld", tables: []string{"firewalld"}},
	{name: "ufw", prefixes: []string{"ufw"}},
	{name: "Calico", tables: []string{"calico"}, prefixes: []string{"cali-"}, words: []string{"cali:"}},
	{name: "flannel", tables: []string{"flannel-ipv4", "flannel-ipv6"}, prefixes: []string{"FLANNEL"}, words: []string{"flanneld"}},
	{name: "Cilium", prefixes: []string{"CILIUM_", "OLD_CILIUM_"}, words: []string{"cilium:"}},
	{name: "kube-router", tables: []string{"kube-router"}, prefixes: []string{"KUBE-ROUTER", "KUBE-POD-FW", "KUBE-NWPLCY", "KUBE-SVC-FW"}, words: []string{"kube-router"}},
	{name: "kube-proxy", tables: []string{takeover.KubeProxyTable}},
	{name: "the kubelet", prefixes: []string{"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"}},
	{name: "kindnet", tables: []string{"kindnet", "kindnetd", "kindnet-network-policies", "kube-network-policies"}},
	{name: "Istio", prefixes: []string{"ISTIO", "istio"}, words: []string{"istio"}},
	{name: "Antrea", tables: []string{"antrea"}, prefixes: []string{"ANTREA-"}, words: []string{"Antrea:"}},
	{name: "Weave", prefixes: []string{"WEAVE"}},
	{name: hostPorts, tables: []string{"cni_hostport"}, prefixes: []string{"CNI-HOSTPORT", "CNI-DN-"}},
	{name: "NodeLocal DNSCache", words: []string{"NodeLocal DNS"}},
	{name: "Tailscale", tables: []string{"tailscale"}, prefixes: []string{"ts-forward", "ts-postrouting", "ts-input"}},
	{name: "libvirt", tables: []string{"libvirt_network"}, prefixes: []string{"LIBVIRT_"}},
	{name: "fail2ban", tables: []string{"f2b-table"}, prefixes: []string{"f2b-"}},
	{name: "CrowdSec", tables: []string{"crowdsec", "crowdsec6"}, prefixes: []string{"CROWDSEC"}},
	{name: "sshguard", tables: []string{"sshguard"}, prefixes: []string{"sshguard"}},
	{name: "OVN-Kubernetes", tables: []string{"ovn-kubernetes"}, prefixes: []string{"OVN-KUBE"}},
}

// Program returns the name of the program that a chain belongs to by its name, or an empty
// string.
func Program(table, chain string) string {
	for _, w := range writers {
		if slices.Contains(w.tables, table) || hasPrefix(chain, w.prefixes) {
			return w.name
		}
	}
	if takeover.IsKubeProxy(chain) {
		return "kube-proxy"
	}
	return ""
}

// ProgramOfRule returns the name of the program that a rule belongs to, in a chain that
// several programs write to, such as FORWARD: by the chain that it leads to, and by its text.
func ProgramOfRule(to, text string) string {
	if to != "" {
		if name := Program("", to); name != "" {
			return name
		}
	}
	for _, w := range writers {
		if slices.ContainsFunc(w.words, func(word string) bool { return strings.Contains(text, word) }) {
			return w.name
		}
	}
	return ""
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
